import type { Answer, Ask, Until } from './ask.js';
import { Connection } from './connection.js';
import { sleep } from './duration.js';
import { named } from './endpoint.js';
import { isSidecarError, messageOf, SidecarError } from './errors.js';
import type { Presence } from './presence.js';
import { passes } from './problem.js';
import { Replayer, type ReplayReport, runKey, type Send } from './replay.js';
import type { Settings } from './settings.js';
import { Spool, type SpoolAsk } from './spool.js';
import { Unreached } from './unreached.js';

/** A write that is not with the daemon yet, and why. */
export class SetAside {
  constructor(
    readonly stored: 'spool' | 'nowhere',
    readonly reason: SidecarError,
  ) {}
}

/** Not an outage: others of the run must go first. */
export class Behind extends SidecarError {
  constructor(run: RunName, folder: string) {
    super('busy', `requests of agent ${run.agent}, run ${run.run}, wait in the spool ${folder} and must go first`);
  }
}

/** What the backlog needs of the calls that go before it. */
export interface Line {
  readonly connection: Connection;
  readonly presence: Presence;
  turn<T>(work: () => Promise<T>, background?: boolean): Promise<T>;
  send(ask: Ask, timeout: number): Promise<Answer>;
  sender(until: Until, instead: boolean): Send;
  locate(until: Until, instead: boolean, ask?: boolean): Promise<string>;
}

/** Of a run whose requests wait in the spool. */
export interface RunName {
  agent: string;
  run: string;
}

/** Of so many runs it is remembered that nothing of them waits. */
const mostClear = 4096;
const firstPause = 20;
const longestPause = 1000;
const slice = 100; // how long a replay in the background keeps others waiting
const drainPauses = [250, 1000, 2000, 5000];
const probePatience = 5000;

/** What waits in the spool: it goes before everything new of its run. */
export class Backlog {
  private readonly replayer: Replayer;
  private readonly clear = new Set<string>(); // runs of which nothing waits
  private timer: NodeJS.Timeout | undefined;
  private inVain = 0;
  private added = 0; // since the daemon was last there
  private lost = 0;
  private closed = false;
  private draining = false;
  private unreadable = false;

  constructor(
    private readonly settings: Settings,
    private readonly line: Line,
  ) {
    const { folder, maxBytes } = settings.spool;
    this.replayer = new Replayer(new Spool(folder, maxBytes, settings.client), settings.warn);
  }

  /**
   * Replays what waits of a run, so that nothing of it is overtaken. Throws
   * where that cannot be done; with `instead` it does not wait for it either.
   */
  async settle(run: RunName, until: Until, instead: boolean): Promise<void> {
    const key = runKey(run.agent, run.run);
    if (this.clear.has(key)) return;
    const { presence } = this.line;
    if (instead && (presence.silent || presence.awayJustNow)) throw presence.error;
    if (instead && presence.error) await this.line.locate(until, true, true); // to list a long spool would cost more than to ask
    const behind = new Behind(run, this.settings.spool.folder);
    for (let pause = firstPause; await this.waits(key); pause = Math.min(pause * 2, longestPause)) {
      const known = presence.error;
      const endpoint = await this.line.locate(until, instead);
      let failure: SidecarError | undefined;
      const send = noting(this.line.sender(until, instead), (error) => (failure = error));
      const report = await this.attempt(endpoint, send, key, () => failure !== undefined || performance.now() > until(behind));
      if (report && report.left === 0) continue; // and look again: somebody may have added to it
      const why = failure ?? behind;
      const left = until(why) - performance.now();
      if (left <= 0 || (instead && (known !== undefined || failure === undefined))) {
        if (failure) presence.failed(failure);
        throw why;
      }
      await sleep(Math.min(pause * (0.5 + Math.random()), left));
    }
    if (this.clear.size >= mostClear) this.clear.clear(); // which costs one look at the spool for each
    this.clear.add(key);
  }

  /** Another client may have spooled something of a run since it was looked at. */
  forget(run: RunName): void {
    this.clear.delete(runKey(run.agent, run.run));
  }

  /** Spools a request. */
  async add(ask: SpoolAsk, reason: SidecarError): Promise<SetAside> {
    const { spool, warn, socket } = this.settings;
    try {
      await this.replayer.spool.add(ask, this.line.connection.endpoint ?? named(socket));
    } catch (error) {
      if (spool.whenItFails === 'raise') {
        throw new SidecarError('spool', `${messageOf(error)}; it is needed because ${messageOf(reason)}`, { outcome: reason.outcome, cause: error });
      }
      if (this.lost++ === 0) warn(`writes are lost from now on: ${messageOf(reason)}; and ${messageOf(error)}`);
      return new SetAside('nowhere', error as SidecarError);
    }
    this.forget(ask);
    if (!(reason instanceof Behind) && this.added++ === 0) warn(`writes wait in the spool ${spool.folder} from now on: ${messageOf(reason)}`);
    this.drainLater();
    return new SetAside('spool', reason);
  }

  /** The daemon answers again. */
  back(): void {
    this.inVain = 0;
    const lost = this.lost > 0 ? `; ${this.lost} more were lost, because the spool failed` : '';
    if (this.added > 0 || this.lost > 0) this.settings.warn(`the daemon answers again; ${this.added} requests were spooled${lost}`);
    this.added = this.lost = 0;
    if (!this.timer || this.draining) return;
    clearTimeout(this.timer); // the pause before the next look is short again
    this.timer = undefined;
    this.drainLater();
  }

  /** Replays all that waits for this daemon; what it does not take at once again, as long as it gets on. */
  async replay(deadline: number): Promise<ReplayReport> {
    let until = performance.now() + deadline;
    const endpoint = await this.line.locate(() => until, false);
    const sum: ReplayReport = { sent: 0, rejected: [], left: 0 };
    for (let pause = firstPause; ; pause = Math.min(pause * 2, longestPause)) {
      const report = await this.attempt(endpoint, (ask) => this.line.send(ask, this.settings.timeout), undefined, () => false);
      if (report) {
        sum.sent += report.sent;
        sum.rejected.push(...report.rejected);
        sum.left = report.left;
        if (report.left === 0) return sum;
        if (report.sent > 0) until = performance.now() + deadline;
      }
      if (performance.now() >= until) {
        if (report) return sum;
        throw new SidecarError('busy', `another process is replaying the spool ${this.settings.spool.folder} just now`);
      }
      await sleep(pause);
    }
  }

  /** What waits of a run, the oldest first. */
  async waiting(run: RunName): Promise<{ spool: Spool; names: string[] }> {
    const runs = await this.replayer.waiting(this.line.connection.endpoint);
    return { spool: this.replayer.spool, names: runs.get(runKey(run.agent, run.run)) ?? [] };
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.replayer.spool.close();
  }

  private async waits(key: string): Promise<boolean> {
    try {
      const runs = await this.replayer.waiting(this.line.connection.endpoint);
      if (runs.size > 0) this.drainLater();
      return runs.has(key);
    } catch (error) {
      if (!this.unreadable) this.settings.warn(`${messageOf(error)}; its writes are not replayed`);
      this.unreadable = true;
      return false;
    }
  }

  private async attempt(endpoint: string, send: Send, only: string | undefined, over: () => boolean): Promise<ReplayReport | undefined> {
    try {
      return await this.replayer.replay(endpoint, send, only, over);
    } catch (error) {
      if (isSidecarError(error)) throw error;
      throw new SidecarError('busy', `the spool ${this.settings.spool.folder} cannot be replayed: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Empties the spool in the background, a slice at a time, without keeping the process alive. */
  private drainLater(): void {
    if (this.timer || this.closed) return;
    this.timer = setTimeout(() => void this.drain(), drainPauses[Math.min(this.inVain, drainPauses.length - 1)]!);
    this.timer.unref();
  }

  private async drain(): Promise<void> {
    let done = false;
    this.draining = true;
    try {
      if (!this.line.presence.silent || (await this.probe())) done = await this.line.turn(() => this.drainSlice(), true);
    } catch {
      // it is tried again
    }
    this.draining = false;
    this.timer = undefined;
    if (!done) this.drainLater();
  }

  /** Asks a silent daemon over another connection, so that nobody waits behind the question. */
  private async probe(): Promise<boolean> {
    const beside = new Connection(this.line.connection.paths[0]);
    try {
      await beside.send({ method: 'GET', path: '/v1/version', background: true }, probePatience);
      this.line.presence.answered();
      this.back();
      return true;
    } catch {
      this.inVain++;
      return false;
    } finally {
      beside.close();
    }
  }

  /** Whether nothing is left to do. */
  private async drainSlice(): Promise<boolean> {
    if (this.closed) return true;
    const { connection, presence } = this.line;
    const began = performance.now();
    let failure: SidecarError | undefined;
    const send = (ask: Ask): Promise<Answer> => this.line.send({ ...ask, background: true }, Math.max(this.settings.deadline, slice));
    try {
      if (!connection.endpoint) await send({ method: 'GET', path: '/v1/version' });
      const noted = noting(send, (error) => (failure = error));
      const report = await this.attempt(connection.endpoint!, noted, undefined, () => failure instanceof Unreached || performance.now() - began > slice);
      if (report && report.left === 0) return true;
      this.inVain = report && report.sent > 0 ? 0 : this.inVain + 1;
    } catch (error) {
      failure = isSidecarError(error) ? error : undefined;
      this.inVain++;
    }
    if (failure && presence.error) presence.failed(failure);
    return false;
  }
}

/** Notes the errors that pass. */
function noting(send: Send, note: (error: SidecarError) => void): Send {
  return async (ask) => {
    try {
      return await send(ask);
    } catch (error) {
      if (isSidecarError(error) && passes(error, true)) note(error);
      throw error;
    }
  };
}
