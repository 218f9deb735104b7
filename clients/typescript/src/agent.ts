import type { Delivery } from './delivery.js';
import { type Stored, stored } from './checkpoint.js';
import type { Answer, Ask } from './ask.js';
import { type About, Document, type Form } from './document.js';
import { isSidecarError } from './errors.js';
import { Drift, type DriftVerdict } from './drift.js';
import { understood } from './problem.js';
import { baseOf, checkAgent, checkLife, checkRun, get, objectOf, post, queryOf } from './requests.js';
import type { RunOptions } from './options.js';
import type { Run } from './run.js';
import { runOn } from './running.js';
import { encodeState, type Saved, type SaveOptions, type Saver } from './saver.js';
import { start } from './start.js';
import type { Checkpoint, CheckpointPage, ClearedRun, DeletedRun, Diff, Erased, Kind, Labels, Policy, PolicyLayers, Removal, RunInfo, RunFilter, RunPage } from './wire.js';

export interface RestoreOptions {
  /** a certain one, by its id */
  checkpoint?: string;
  /** otherwise the newest of this kind */
  kind?: Kind;
  /** pass over suspect checkpoints */
  clean?: boolean;
  run?: string;
  /** why, for the audit log */
  reason?: string;
}

export interface ListFilter {
  run?: string;
  kind?: Kind;
  /** all of these must match */
  labels?: Labels;
  /** only suspect ones; with `false` only clean ones */
  suspect?: boolean;
  /** the `next` of the page before */
  before?: string;
  /** of one page, 1 to 1000; 50 */
  limit?: number;
}

/**
 * One agent: what is saved under its name, and its runs. Where no run is named, a call is about the run for which
 * `ckptsidecar exec` has started this process for the agent, else about `main`. `list` and `all` are about all runs, and so
 * is `latest` without exec.
 */
export class Agent {
  constructor(
    private readonly delivery: Delivery,
    private readonly saver: Saver,
    readonly name: string,
  ) {}

  /**
   * Saves a state. The promise is kept when the state is on disk: the daemon's,
   * or where the daemon stays away, the spool's (`stored` says which).
   */
  save(state: unknown, options: SaveOptions & { run?: string } = {}): Promise<Saved> {
    return this.saver.save(this.name, this.runOf(options.run), undefined, state, options);
  }

  /** @internal Saves a state where its bytes are not the last ones. */
  async saveChanged(state: unknown, last: Buffer | undefined, options: SaveOptions & { run: string }): Promise<{ saved: Saved; bytes: Buffer } | undefined> {
    const encoded = encodeState(state, options, this.delivery.settings.unserializable);
    if (last?.equals(encoded.bytes)) return undefined;
    return { saved: await this.saver.saveBytes(this.name, this.runOf(options.run), undefined, encoded, options), bytes: encoded.bytes };
  }

  /** Goes back to a checkpoint: its state, and a note in the audit log. The run's next save has it as its parent. */
  async restore<S = any>(options: RestoreOptions = {}): Promise<Stored<S>> {
    const { checkpoint, kind, clean, run, reason } = options;
    const named = run ?? (checkpoint === undefined ? this.namedRun() : undefined);
    const body = objectOf({ checkpoint, kind, clean: clean || undefined, run: named === undefined ? undefined : checkLife(named), reason });
    const answer = await this.ask(post(`${this.path}/restore`, body, { agent: this.name, run: baseOf(this.lifeOf(run)) }), run);
    return stored<S>(answer, true);
  }

  /** The newest checkpoint with its state, null where there is none. It records nothing. */
  async latest<S = any>(filter: { run?: string; kind?: Kind; clean?: boolean } = {}): Promise<Stored<S> | null> {
    const query = queryOf({ run: filter.run ?? this.namedRun(), kind: filter.kind, clean: filter.clean || undefined });
    try {
      return stored<S>(await this.ask(get(`${this.path}/checkpoints/latest`, query), filter.run), false);
    } catch (error) {
      if (isSidecarError(error, 'not_found')) return null;
      throw error;
    }
  }

  /** One page of checkpoints without their states, newest first. An agent that has saved nothing yet has none. */
  async list(filter: ListFilter = {}): Promise<CheckpointPage> {
    const { labels, ...rest } = filter;
    try {
      return understood(await this.ask(get(`${this.path}/checkpoints`, queryOf(rest, labels)), filter.run), false);
    } catch (error) {
      if (isSidecarError(error, 'not_found')) return { checkpoints: [], next: null };
      throw error;
    }
  }

  /** All checkpoints without their states, newest first, page by page. */
  async *all(filter: Omit<ListFilter, 'before'> = {}): AsyncGenerator<Checkpoint, void, undefined> {
    for (let before: string | undefined; ; ) {
      const page = await this.list({ limit: 1000, ...filter, ...(before ? { before } : {}) });
      yield* page.checkpoints;
      if (!page.next) return;
      before = page.next;
    }
  }

  /** One checkpoint with its state. */
  async checkpoint<S = any>(id: string): Promise<Stored<S>> {
    return stored<S>(await this.delivery.call(get(`/v1/checkpoints/${encodeURIComponent(id)}`)), false);
  }

  /** What leads from the state of one checkpoint to that of another, as an RFC 6902 patch, and a summary. */
  async diff(from: string | { id: string }, to: string | { id: string }): Promise<Diff> {
    const [a, b] = [from, to].map((of) => encodeURIComponent(typeof of === 'string' ? of : of.id));
    return understood(await this.delivery.call(get(`/v1/checkpoints/${a}/diff/${b}`)), false);
  }

  /** Changes the pin, or replaces all labels, of a checkpoint. */
  async mark(id: string, change: { pinned?: boolean; labels?: Labels }): Promise<Checkpoint> {
    const ask: Ask = {
      method: 'PATCH',
      path: `/v1/checkpoints/${encodeURIComponent(id)}`,
      headers: { 'Content-Type': 'application/json' },
      body: objectOf(change),
      write: true,
      repeatable: true,
    };
    return understood(await this.delivery.call(ask), true);
  }

  /** Removes a checkpoint. */
  async delete(id: string): Promise<Removal> {
    return understood(await this.delivery.call({ method: 'DELETE', path: `/v1/checkpoints/${encodeURIComponent(id)}`, write: true }), true);
  }

  /** Removes a run with all that belongs to it, unless its owner lives or something in it waits. `force` is for administrators. */
  async deleteRun(run: string, { force }: { force?: boolean } = {}): Promise<DeletedRun> {
    const query = queryOf({ force: force || undefined });
    return understood(await this.delivery.call({ method: 'DELETE', path: `${this.path}/runs/${checkLife(run)}`, query, write: true }), true);
  }

  /** Removes the checkpoints of a run that are not pinned and that nothing needs. */
  async clear(run?: string): Promise<ClearedRun> {
    return understood(await this.delivery.call({ method: 'DELETE', path: `${this.path}/runs/${this.lifeOf(run)}/checkpoints`, write: true }), true);
  }

  /** Begins a new run with a state made of a checkpoint's: its first checkpoint has the other as its parent, where the agent is the same. */
  async fork(checkpoint: string, state: unknown, to: { run: string; agent?: string }): Promise<Saved> {
    const from = understood<Checkpoint>(await this.delivery.call(get(`/v1/checkpoints/${encodeURIComponent(checkpoint)}`, 'state=false')), false);
    const agent = new Agent(this.delivery, this.saver, checkAgent(to.agent ?? this.name));
    const metadata = { fork: { checkpoint: from.id, agent: from.agent, run: from.run, seq: from.seq } };
    return agent.save(state, { run: to.run, metadata, forkFrom: from.id, ...(from.program ? { program: from.program } : {}) });
  }

  /** Erases the agent and all that it has, for good. */
  async erase(): Promise<Erased> {
    return understood(await this.delivery.call({ method: 'DELETE', path: this.path, write: true }), true);
  }

  /** All of the agent as text, or of one run: docs/EXPORT.md has the form, `Sidecar.import` brings it in. It is held in memory as a whole. */
  async export({ run }: { run?: string } = {}): Promise<Buffer> {
    const query = queryOf({ run: run === undefined ? undefined : checkLife(run) });
    return (await this.ask(get(`${this.path}/export`, query), run)).body;
  }

  /**
   * Asks the daemon for the verdict on a run's drift, with all findings that are open. The verdict of an agent or a run that the daemon does
   * not know yet is `none`.
   */
  async drift(run?: string): Promise<Drift> {
    try {
      return new Drift(understood<DriftVerdict>(await this.ask(get(`${this.path}/drift`, queryOf({ run: this.lifeOf(run) })), run), false));
    } catch (error) {
      if (isSidecarError(error, 'not_found')) return new Drift();
      throw error;
    }
  }

  async policy(): Promise<Policy> {
    return understood(await this.delivery.call(get(`${this.path}/policy`)), false);
  }

  /** The policy, where each of its values comes from, and what the agent, its owner for all agents and the daemon have set. */
  async policyLayers(): Promise<PolicyLayers> {
    return understood(await this.delivery.call(get(`${this.path}/policy`, queryOf({ layers: true }))), false);
  }

  /**
   * Changes some of the agent's own settings and leaves the others; `undefined` sets one no more, so that what is set
   * for all agents or the default counts. Answers what then counts.
   */
  async setPolicy(change: Partial<Policy>): Promise<Policy> {
    const old = await this.policyLayers().then((layers) => layers.agent, (error: unknown) => {
      if (isSidecarError(error, 'not_found')) return {};
      throw error;
    });
    const headers = { 'Content-Type': 'application/json' };
    const ask: Ask = { method: 'PUT', path: `${this.path}/policy`, headers, body: objectOf({ ...old, ...change }), write: true, repeatable: true };
    return understood(await this.delivery.call(ask), true);
  }

  /** The agent's runs, the last changed first. */
  async runs(filter: RunFilter = {}): Promise<RunPage> {
    const { labels, ...rest } = filter;
    return understood(await this.delivery.call(get(`${this.path}/runs`, queryOf(rest, labels))), false);
  }

  /** One run as the daemon knows it. */
  async info(run?: string): Promise<RunInfo> {
    const name = this.lifeOf(run);
    return understood(await this.ask(get(`${this.path}/runs/${name}`), run), false);
  }

  /**
   * Begins or resumes a run and does something in it: it beats while `work`
   * goes on, and ends with it. Throws where a person must act first.
   */
  async run<T, S = any>(work: (run: Run<S>) => T | Promise<T>, options: RunOptions<S> = {}): Promise<T> {
    return runOn(await this.start<S>(options), work, options);
  }

  /** Begins or resumes a run, which the caller must end. */
  start<S = any>(options: RunOptions<S> = {}): Promise<Run<S>> {
    return start<S>(this.delivery, this.saver, { agent: this.name, run: this.runOf(options.run) }, options);
  }

  /** @internal Something that is read and changed as a whole, in a run of its own. */
  document<C>(run: string, about: About, form: Form<C>): Document<C> {
    return new Document(this.delivery, this.saver, { agent: this.name, run: checkRun(run) }, about, form);
  }

  private get path(): string {
    return `/v1/agents/${this.name}`;
  }

  /** The run that `ckptsidecar exec` names, where it is about this agent. */
  private namedRun(): string | undefined {
    return process.env['CKPTSIDECAR_AGENT'] === this.name ? process.env['CKPTSIDECAR_RUN'] || undefined : undefined;
  }

  private runOf(run: string | undefined): string {
    return checkRun(run ?? this.namedRun() ?? 'main');
  }

  /** Of what an earlier life of a run has, too. */
  private lifeOf(run: string | undefined): string {
    return checkLife(run ?? this.namedRun() ?? 'main');
  }

  /** What waits in the spool of the run goes first, so that it is seen. */
  private ask(ask: Ask, run: string | undefined): Promise<Answer> {
    const until = performance.now() + this.delivery.settings.deadline;
    return this.delivery.afterSpool({ agent: checkAgent(this.name), run: baseOf(this.lifeOf(run)) }, ask, () => until);
  }
}
