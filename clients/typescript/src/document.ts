import { createHash } from 'node:crypto';

import type { Delivery } from './delivery.js';
import { cutState, type Stored, withState } from './checkpoint.js';
import type { Answer, Ask } from './ask.js';
import { sleep } from './duration.js';
import { invalid, isSidecarError, SidecarError } from './errors.js';
import { NeedsOperator, planOf, PlanRefused } from './plan.js';
import { passes, understood } from './problem.js';
import { get, objectOf, post, queryOf } from './requests.js';
import type { EncodedState, Saver } from './saver.js';
import type { Checkpoint, CheckpointPage, Labels, Policy, RunInfo } from './wire.js';

/** What a document's run is for, as people see it. */
export interface About {
  workflow?: string;
  externalSession?: string;
  parentRun?: string;
  labels?: Labels;
}

/** How a document's content is read and written. */
export interface Form<C> {
  /** of what was saved; undefined: nothing was */
  read: (saved: Stored | undefined) => C;
  write: (content: C) => EncodedState;
  /** what is kept beside the content, and is listed without it */
  metadata?: (content: C) => Record<string, unknown>;
}

const tries = 50; // to write, while others do
const firstPause = 20;
const longestPause = 1000;

/**
 * Something that is read and changed as a whole, such as a conversation: it is
 * one run, and each change one checkpoint. Any number of processes may change
 * it: each claims the run for its changes, and one that was overtaken reads
 * again and makes its change again. A run that has ended is an empty document.
 */
export class Document<C> {
  private claimed: { epoch: number; content: C } | undefined;
  private tail: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly delivery: Delivery,
    private readonly saver: Saver,
    private readonly name: { agent: string; run: string },
    /** for people */
    private readonly about: About,
    private readonly form: Form<C>,
  ) {}

  /** What it holds, with what other processes have written. While the daemon is away it is what was last written here. */
  read(): Promise<C> {
    return this.turn(async () => {
      const own = this.claimed;
      if (own && this.delivery.presence.error) return own.content;
      try {
        return this.form.read((await this.begun()) ? await this.newest() : undefined);
      } catch (error) {
        if (!own || !isSidecarError(error) || !passes(error, false)) throw error;
        return own.content;
      }
    });
  }

  /** Changes it: `work` answers the new content, undefined to leave it, or throws. It may be asked more than once. */
  change(work: (content: C) => C | undefined | Promise<C | undefined>): Promise<void> {
    return this.turn(async () => {
      let refused: { why: unknown } | undefined;
      await this.insist(async ({ epoch, content }, known) => {
        let next: C | undefined;
        refused = undefined;
        try {
          next = await work(content);
        } catch (why) {
          refused = { why };
        }
        if (next === undefined) return known ? this.verify(epoch) : undefined;
        const options = this.form.metadata ? { metadata: this.form.metadata(next) } : {};
        await this.saver.saveBytes(this.name.agent, this.name.run, epoch, this.form.write(next), options);
        this.claimed = { epoch, content: next };
      });
      if (refused) throw refused.why;
    });
  }

  /** Ends the run and removes its checkpoints. A change after it begins anew. */
  remove(): Promise<void> {
    return this.turn(async () => {
      let ids = await this.checkpoints();
      if (await this.begun()) {
        await this.insist(async ({ epoch }) => {
          ids = await this.checkpoints(); // and none after them: who saves must claim the run first
          await this.ask(post(`${this.path}/end`, objectOf({ epoch, status: 'completed' }), this.name));
        });
      }
      this.claimed = undefined;
      for (const id of ids) await this.delivery.call({ method: 'DELETE', path: `/v1/checkpoints/${id}`, write: true }).catch(notFound);
    });
  }

  private get path(): string {
    return `/v1/agents/${this.name.agent}/runs/${this.name.run}`;
  }

  /** One after the other. */
  private turn<T>(work: () => Promise<T>): Promise<T> {
    const result = this.tail.then(work);
    this.tail = result.catch(() => undefined);
    return result;
  }

  /** Does something as the run's owner, again where another has become it. */
  private async insist(work: (claimed: { epoch: number; content: C }, known: boolean) => Promise<unknown>): Promise<void> {
    for (let n = 1, pause = firstPause; ; n++, pause = Math.min(pause * 1.5, longestPause)) {
      const known = this.claimed !== undefined;
      try {
        await work((this.claimed ??= await this.claim()), known);
        return;
      } catch (error) {
        this.claimed = undefined; // whatever it was: what the daemon has is not known any more
        if (n >= tries || !(isSidecarError(error, 'fenced') || isSidecarError(error, 'conflict'))) throw error;
        await sleep(Math.random() * pause);
      }
    }
  }

  /** Throws where another has become the owner, so that what is known here may be old. A daemon that is away cannot say so. */
  private async verify(epoch: number): Promise<void> {
    if (this.delivery.presence.error) return;
    const run = await this.info().catch((error: unknown) => {
      if (isSidecarError(error) && passes(error, false)) return null;
      throw error;
    });
    if (run !== null && (run?.epoch !== epoch || run.ended_at !== null)) throw new SidecarError('fenced', `run ${this.name.run} has another owner`);
  }

  private async claim(): Promise<{ epoch: number; content: C }> {
    await this.prepareAgent();
    const body = objectOf({ heartbeat_timeout: '0s', progress_timeout: '0s' });
    const plan = planOf(await this.ask(post(`${this.path}/resume`, body, this.name)));
    if (!plan.claimed) throw plan.verdict === 'ask' ? new NeedsOperator(plan) : new PlanRefused(plan);
    if (plan.verdict !== 'fresh') return { epoch: plan.epoch, content: this.form.read(await this.newest()) };
    await this.describe();
    return { epoch: plan.epoch, content: this.form.read(undefined) };
  }

  /** Says what a new run is for. */
  private async describe(): Promise<void> {
    const { workflow, externalSession, parentRun, labels } = this.about;
    const members = { run: this.name.run, heartbeat_timeout: '0s', progress_timeout: '0s', workflow, parent_run: parentRun, external_session: externalSession, labels };
    await this.ask(post(`/v1/agents/${this.name.agent}/runs`, objectOf(members), this.name));
  }

  /** A new agent is not watched for drift: a history that is cut or rewritten is none here. */
  private async prepareAgent(): Promise<void> {
    const path = `/v1/agents/${this.name.agent}/policy`;
    const known = await this.delivery.call(get(path)).catch(notFound);
    if (known) return;
    const policy: Partial<Policy> = { sensitivity: 'off' };
    await this.delivery.call({ method: 'PUT', path, headers: { 'Content-Type': 'application/json' }, body: objectOf(policy), write: true, repeatable: true });
  }

  /** Whether the run has been written to since it began. */
  private async begun(): Promise<boolean> {
    const run = await this.info();
    return run !== undefined && run.ended_at === null && run.status !== 'starting';
  }

  private async info(): Promise<RunInfo | undefined> {
    const answer = await this.ask(get(this.path)).catch(notFound);
    return answer && understood<RunInfo>(answer, false);
  }

  private async newest(): Promise<Stored | undefined> {
    const query = queryOf({ run: this.name.run, kind: 'routine' });
    const answer = await this.ask(get(`/v1/agents/${this.name.agent}/checkpoints/latest`, query)).catch(notFound);
    if (!answer) return undefined;
    const { body, state } = cutState(answer);
    return withState(understood<Checkpoint>({ ...answer, body }, false), state ?? Buffer.alloc(0));
  }

  private async checkpoints(): Promise<string[]> {
    const ids: string[] = [];
    for (let before: string | undefined; ; ) {
      const query = queryOf({ run: this.name.run, limit: 1000, before });
      const answer = await this.ask(get(`/v1/agents/${this.name.agent}/checkpoints`, query)).catch(notFound);
      const page = answer && understood<CheckpointPage>(answer, false);
      ids.push(...(page?.checkpoints ?? []).map((c) => c.id));
      if (!page?.next) return ids;
      before = page.next;
    }
  }

  /** What waits in the spool of the run goes first, so that it is seen. */
  private ask(ask: Ask): Promise<Answer> {
    const until = performance.now() + this.delivery.settings.deadline;
    return this.delivery.afterSpool(this.name, ask, () => until);
  }
}

function notFound(error: unknown): undefined {
  if (!isSidecarError(error, 'not_found')) throw error;
}

/** A name of a run that people can read, another one for each key. */
export function runNameOf(readable: string, ...key: string[]): string {
  const text = readable.replace(/[^A-Za-z0-9._:@+-]/g, '_').replace(/^[^A-Za-z0-9]+/, '').slice(0, 100);
  const hash = createHash('sha256').update(JSON.stringify(key)).digest('hex').slice(0, 16);
  return text === '' ? hash : `${text}-${hash}`;
}

/** The error of a document that another program wrote. */
export function foreign(what: string, saved: Stored): Error {
  return invalid(`run ${saved.run} of agent ${saved.agent} does not hold ${what}: give another agent's name`);
}
