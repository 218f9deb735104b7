import { SetAside } from './backlog.js';
import { cutState, type Stored, withState } from './checkpoint.js';
import type { Core } from './core.js';
import { decode } from './decode.js';
import { encode } from './encode.js';
import { isSidecarError, SidecarError } from './errors.js';
import { understood } from './problem.js';
import { checkKey, objectOf, post, segment } from './requests.js';
import { errorText, isDone, keep, known, remember, resultOf, StepContext, told } from './step.js';
import type { Checkpoint, Labels, OperationInfo } from './wire.js';

export interface OperationOptions {
  /** what is done once in this run; otherwise the name */
  key?: string;
  /** of the checkpoint that is taken before */
  labels?: Labels;
}

/** What was done inside an operation threw; `cause` is what. */
export class OperationFailed<S = any> extends SidecarError {
  constructor(
    readonly operation: string,
    /** the state from before, to go back to; undefined where there was none */
    readonly state: S | undefined,
    /** the checkpoint that holds it; null where the daemon is away */
    readonly checkpoint: Stored<S> | null,
    cause: unknown,
  ) {
    super('operation_failed', `operation ${operation} failed: ${errorText(cause)}`, { cause });
  }
}

/** A risky operation that was begun: do it, and say how it ended. */
export class OpenOperation<T = any> implements AsyncDisposable {
  private settled: boolean;

  /** @internal */
  constructor(
    private readonly core: Core,
    private readonly name: string,
    private readonly before: Buffer | undefined,
    /** what the work of an operation is given */
    readonly context: StepContext,
    /** it has succeeded before: do not do it again */
    readonly replayed: boolean,
    /** what came out of it then */
    readonly result: T | undefined,
  ) {
    this.settled = replayed;
  }

  /** It was done. Answers the result as a resumed run gets it. */
  succeed(value?: T): Promise<T> {
    return this.settle(async () => {
      const result = resultOf(value, `the result of operation ${this.name}`);
      await this.core.send(post(`${this.path}/succeed`, objectOf({ epoch: this.core.epoch }, { result: result.bytes }), this.core));
      return remember<T>(this.core, `operation ${this.context.key}`, value as T, result);
    });
  }

  /** It failed. Answers an error that offers the state from before. */
  fail(thrown: unknown): Promise<OperationFailed> {
    return this.settle(() => failed(this.core, this.path, this.name, this.before, thrown));
  }

  /** For `await using`: an operation that is left without having succeeded has failed. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.settled) await this.fail(new Error('the block ended before the operation succeeded'));
  }

  private get path(): string {
    return `${this.core.path}/operations/${segment(this.context.key)}`;
  }

  /** Ends it once. Until the daemon knows, the run is busy. */
  private async settle<R>(end: () => Promise<R>): Promise<R> {
    if (this.settled) throw new SidecarError('conflict', `operation ${this.name} has ended already`);
    this.settled = true;
    try {
      return await end();
    } finally {
      this.core.busy--;
    }
  }
}

export async function beginOperation<T>(core: Core, name: string, state: unknown, options: OperationOptions): Promise<OpenOperation<T>> {
  core.mayBegin();
  const key = checkKey('operation key', options.key ?? name);
  checkKey('operation name', name);
  const before = state === undefined ? undefined : encode(state, core.delivery.settings.unserializable, `the state before operation ${name}`).bytes;
  core.busy++;
  let open = false;
  try {
    const body = objectOf({ key, name, epoch: core.epoch, labels: options.labels }, { state: before });
    const begun = await core.send<OperationInfo>(post(`${core.path}/operations`, body, core)).catch((error: unknown) => notBegun(core, key, error));
    const away = begun instanceof SetAside;
    const replayed = away ? isDone(core, 'operation', key, begun) : begun.replayed === true;
    const result = !replayed ? undefined : away ? known<T>(core, 'operation', key) : keep(core, `operation ${key}`, begun.result as T);
    open = !replayed;
    return new OpenOperation<T>(core, name, before, new StepContext(key, away ? undefined : begun.attempt, core.signal), replayed, result);
  } finally {
    if (!open) core.busy--;
  }
}

export async function doOperation<T>(
  core: Core,
  name: string,
  state: unknown,
  work: (operation: StepContext) => T | Promise<T>,
  options: OperationOptions,
): Promise<T> {
  const operation = await beginOperation<T>(core, name, state, options);
  if (operation.replayed) return operation.result as T;
  let value: T;
  try {
    value = await work(operation.context);
  } catch (thrown) {
    throw await operation.fail(thrown);
  }
  return operation.succeed(value);
}

/** The daemon may have it as open, but nothing was done: so it has failed, and is not uncertain. */
async function notBegun(core: Core, key: string, error: unknown): Promise<never> {
  if (isSidecarError(error) && error.outcome === 'unknown') {
    const ask = post(`${core.path}/operations/${segment(key)}/fail`, objectOf({ epoch: core.epoch, error: errorText(error) }), core);
    await told(core, error, core.send(ask));
  }
  throw error;
}

/** Tells the daemon, which gives the state back. */
async function failed(core: Core, path: string, name: string, before: Buffer | undefined, thrown: unknown): Promise<OperationFailed> {
  let checkpoint: Stored | null = null;
  const note = async (): Promise<void> => {
    const ask = post(`${path}/fail`, objectOf({ epoch: core.epoch, error: errorText(thrown) }), core);
    const answer = await core.write(ask);
    if (answer instanceof SetAside) return;
    const { body, state } = cutState(answer);
    const { restore } = understood<{ restore?: Checkpoint }>({ ...answer, body }, true);
    if (restore && state) checkpoint = withState(restore, state);
  };
  await told(core, thrown, note());
  const found = checkpoint as Stored | null;
  return new OperationFailed(name, found ? found.state : before && decode(before), found, thrown);
}
