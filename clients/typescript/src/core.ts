import { SetAside } from './backlog.js';
import type { Answer } from './ask.js';
import type { Delivery } from './delivery.js';
import { revive } from './decode.js';
import { type DriftVerdict, DriftWatch } from './drift.js';
import { isSidecarError, SidecarError } from './errors.js';
import type { Plan } from './plan.js';
import { understood } from './problem.js';
import { encodeState, type EncodedState, type Saved, type SaveOptions, Saver } from './saver.js';
import type { SpoolAsk } from './spool.js';

/** What the parts of a run have in common: who it is, whether it may still write, and how. */
export class Core {
  /** steps and operations that have succeeded here, for when the daemon cannot be asked */
  readonly done = new Map<string, unknown>();
  /** whether these are all that have succeeded in the run */
  allKnown = true;
  /** the evidence of operations of which nobody knows the end, by key */
  readonly uncertain = new Map<string, string>();
  /** beginnings of operations of which the answer did not come, by key */
  readonly begins = new Map<string, SpoolAsk>();
  /** what the daemon last said of the run's drift */
  readonly drift: DriftWatch;
  /** how many steps and operations are going on */
  busy = 0;
  private readonly controller = new AbortController();
  private lost: SidecarError | undefined;
  private ended = false;
  private saved: EncodedState | undefined;

  constructor(
    readonly delivery: Delivery,
    private readonly saver: Saver,
    readonly agent: string,
    readonly run: string,
    /** the fencing token; undefined where the run began without the daemon */
    public epoch: number | undefined,
    /** called once, when another owner has the run */
    private readonly onLost: () => void,
    /** how the run was begun; null where it was joined */
    readonly plan: Plan | null,
  ) {
    this.drift = new DriftWatch(delivery.settings.warn);
  }

  get path(): string {
    return `/v1/agents/${this.agent}/runs/${this.run}`;
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Whether it has ended, or is somebody else's. */
  get over(): boolean {
    return this.ended || this.lost !== undefined;
  }

  end(): void {
    this.ended = true;
  }

  /** Nothing new is to begin. */
  abort(reason: SidecarError): void {
    this.controller.abort(reason);
  }

  /** Throws where nothing more may be written. */
  check(): void {
    if (this.lost) throw this.lost;
    if (this.ended) throw new SidecarError('conflict', `run ${this.run} of agent ${this.agent} has ended: start it again`);
  }

  /** Throws where nothing new may begin. */
  mayBegin(): void {
    this.check();
    if (this.controller.signal.aborted) throw this.controller.signal.reason;
  }

  /** The run is another owner's now. */
  lose(error: SidecarError): void {
    if (this.lost) return;
    this.lost = error;
    this.onLost();
    this.controller.abort(error);
  }

  /** Notes what an error means for the run, and hands it on. */
  noted(error: unknown): unknown {
    if (isSidecarError(error, 'fenced')) this.lose(error);
    return error;
  }

  /** Sends a write. */
  async send<T extends object>(ask: SpoolAsk): Promise<T | SetAside> {
    const answer = await this.write(ask);
    return answer instanceof SetAside ? answer : this.said<T>(answer);
  }

  /** Sends a write now or not at all. */
  async direct<T extends object>(ask: SpoolAsk): Promise<T> {
    this.check();
    try {
      return this.said<T>(await this.delivery.direct(ask));
    } catch (error) {
      throw this.noted(error);
    }
  }

  private said<T extends object>(answer: Answer): T {
    const said = understood<T & { drift?: DriftVerdict }>(answer, true);
    this.drift.note(said.drift);
    return revive(said) as T;
  }

  async write(ask: SpoolAsk): ReturnType<Delivery['write']> {
    this.check();
    try {
      return await this.delivery.write(ask);
    } catch (error) {
      throw this.noted(error);
    }
  }

  encode(state: unknown, options: SaveOptions): EncodedState {
    this.check();
    return encodeState(state, options, this.delivery.settings.unserializable);
  }

  /** The state that the run has, as it was saved. */
  loaded(state: EncodedState): void {
    this.saved = state;
  }

  isSaved(state: EncodedState): boolean {
    return this.saved !== undefined && this.saved.contentType === state.contentType && this.saved.bytes.equals(state.bytes);
  }

  async save(state: EncodedState, options: SaveOptions): Promise<Saved> {
    try {
      const saved = await this.saver.saveBytes(this.agent, this.run, this.epoch, state, options);
      if (saved.stored !== 'nowhere') this.saved = state;
      if (saved.stored === 'daemon') this.drift.note(saved.drift);
      return saved;
    } catch (error) {
      throw this.noted(error);
    }
  }
}
