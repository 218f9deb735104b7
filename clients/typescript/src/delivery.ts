import { autostart } from './autostart.js';
import { Backlog, type Line, SetAside } from './backlog.js';
import type { Answer, Ask, Until } from './ask.js';
import { Connection } from './connection.js';
import { sleep } from './duration.js';
import { named } from './endpoint.js';
import { isSidecarError, messageOf } from './errors.js';
import { Presence } from './presence.js';
import { passes, problemOf } from './problem.js';
import type { Send } from './replay.js';
import type { Settings } from './settings.js';
import type { SpoolAsk } from './spool.js';
import { Unreached } from './unreached.js';

/** One try of a call, which may be several requests. */
export type Attempt<A extends Ask> = (send: Send, ask: A) => Promise<Answer>;

const firstPause = 20;
const longestPause = 1000;
const leastTime = 50; // that an attempt has, also when the deadline is over

let awaited = 0;
let alive: NodeJS.Timeout | undefined;

/** Keeps the process while somebody waits, also while only something in the background is on the wire. */
function stayAlive(more: 1 | -1): void {
  alive ??= setInterval(() => undefined, 1 << 30);
  awaited += more;
  if (awaited > 0) alive.ref();
  else alive.unref();
}

/** Makes calls: one after the other, again where that helps, and into the spool where it does not. */
export class Delivery implements Line {
  readonly connection: Connection;
  readonly presence = new Presence();
  readonly backlog: Backlog;
  private tail: Promise<unknown> = Promise.resolve();
  private mayStart: boolean;

  constructor(readonly settings: Settings) {
    this.connection = new Connection(settings.socket);
    this.backlog = new Backlog(settings, this);
    this.mayStart = settings.autostart;
  }

  /** A call that is no write to a run: made until it is answered or `deadline` is over. */
  call(ask: Ask): Promise<Answer> {
    const until = this.within(this.settings.deadline);
    return this.turn(() => this.persist((send, own) => send(own), until, this.owned(ask), false));
  }

  /** A call that is made once, now or not at all. */
  once(ask: Ask, timeout: number): Promise<Answer> {
    return this.turn(() => this.send(this.owned(ask), timeout), ask.background);
  }

  /** A write to a run. Where the daemon stays away it is spooled, if that is allowed. */
  write(ask: SpoolAsk, attempt: Attempt<SpoolAsk> = (send, own) => send(own)): Promise<Answer | SetAside> {
    const until = this.within(this.settings.deadline);
    const own = this.owned(ask);
    const { failOpen } = this.settings;
    return this.turn(async () => {
      try {
        await this.backlog.settle(own, until, failOpen);
        return await this.persist(attempt, until, own, failOpen);
      } catch (error) {
        if (!failOpen || !isSidecarError(error) || !passes(error, true)) throw error;
        return this.backlog.add(own, error);
      }
    });
  }

  /** A write to a run that is made now, after what waits of the run, or not at all. */
  direct(ask: SpoolAsk): Promise<Answer> {
    const until = this.within(this.settings.deadline);
    const own = this.owned(ask);
    const { failOpen } = this.settings;
    return this.turn(async () => {
      await this.backlog.settle(own, until, failOpen);
      return this.persist((send, own) => send(own), until, own, failOpen);
    });
  }

  /** A call that must see what waits in the spool of a run, which therefore goes first. */
  afterSpool(run: { agent: string; run: string }, ask: Ask, until: Until): Promise<Answer> {
    return this.turn(async () => {
      this.backlog.forget(run);
      await this.backlog.settle(run, until, false);
      return this.persist((send, own) => send(own), until, this.owned(ask), false);
    });
  }

  close(): void {
    this.backlog.close();
    this.connection.close();
  }

  /** Calls are made in the order in which they were asked for. Somebody waits for those that are not in the background. */
  turn<T>(work: () => Promise<T>, background = false): Promise<T> {
    const result = this.tail.then(work);
    if (background) {
      this.tail = result.catch(() => undefined);
      return result;
    }
    stayAlive(1);
    const done = (): void => stayAlive(-1);
    this.tail = result.then(done, done);
    return result;
  }

  /** Sends once. Throws every answer that is none of success. */
  async send(ask: Ask, timeout: number): Promise<Answer> {
    const answer = await this.connection.send(ask, timeout);
    if (answer.status < 200 || answer.status > 299) throw problemOf(answer, ask.write === true);
    if (this.presence.error) {
      this.presence.answered();
      this.backlog.back();
    }
    return answer;
  }

  /** Sends that wait for the answer until the deadline where something else can be done instead, and longer where not. */
  sender(until: Until, instead: boolean): Send {
    const { timeout } = this.settings;
    return (ask) => this.send(ask, instead ? Math.max(until() - performance.now(), leastTime) : timeout);
  }

  /** The endpoint of the daemon, found by asking it; with `always` it is asked also where it is known. */
  async locate(until: Until, instead: boolean, always = false): Promise<string> {
    if (always || !this.connection.endpoint) {
      const ask: Ask = { method: 'GET', path: '/v1/version', repeatable: true };
      await this.persist((send) => send(ask), until, ask, instead);
    }
    return this.connection.endpoint!;
  }

  private within(deadline: number): Until {
    const until = performance.now() + deadline;
    return () => until;
  }

  /** For administrators: whose agents the call is about. */
  private owned<A extends Ask>(ask: A): A {
    const { owner } = this.settings;
    if (!owner) return ask;
    const query = `owner=${encodeURIComponent(owner)}`;
    return { ...ask, query: ask.query ? `${ask.query}&${query}` : query };
  }

  /** Tries until there is an answer that stays, or the time is over. With `instead`, a daemon that is known to be away is not waited for. */
  private async persist<A extends Ask>(attempt: Attempt<A>, until: Until, ask: A, instead: boolean): Promise<Answer> {
    const known = this.presence.error;
    if (instead && known && this.presence.silent) throw known;
    for (let pause = firstPause; ; pause = Math.min(pause * 2, longestPause)) {
      try {
        return await attempt(this.sender(until, instead), ask);
      } catch (error) {
        if (!isSidecarError(error)) throw error;
        if (!passes(error, ask.write === true) || (error.outcome === 'unknown' && ask.write && !ask.repeatable)) throw error;
        if (error instanceof Unreached && error.stale) continue; // the daemon had closed an idle connection
        if (error instanceof Unreached && error.nobody && (await this.started())) continue;
        const left = until(error) - performance.now();
        if (left <= 0 || (instead && known)) {
          this.presence.failed(error);
          throw error;
        }
        await sleep(Math.min(Math.max(pause * (0.5 + Math.random()), error.retryAfter ?? 0), left));
      }
    }
  }

  /** Starts a daemon, once and where that is wanted. */
  private async started(): Promise<boolean> {
    if (!this.mayStart) return false;
    this.mayStart = false;
    try {
      await autostart(named(this.settings.socket) || undefined, () => this.connection.paths);
      return true;
    } catch (error) {
      this.settings.warn(messageOf(error));
      return false;
    }
  }
}
