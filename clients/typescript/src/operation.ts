import { SetAside } from './backlog.js';
import { cutState, type Stored, withState } from './checkpoint.js';
import type { Core } from './core.js';
import { decode } from './decode.js';
import { encode } from './encode.js';
import { SidecarError } from './errors.js';
import { understood } from './problem.js';
import { checkKey, objectOf, post, segment } from './requests.js';
import { errorText, known, remember, resultOf, StepContext, told } from './step.js';
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

export async function doOperation<T>(
  core: Core,
  name: string,
  state: unknown,
  work: (operation: StepContext) => T | Promise<T>,
  options: OperationOptions,
): Promise<T> {
  core.mayBegin();
  const key = checkKey('operation key', options.key ?? name);
  checkKey('operation name', name);
  const before = state === undefined ? undefined : encode(state, core.caller.settings.unserializable, `the state before operation ${name}`).bytes;
  core.busy++;
  try {
    const body = objectOf({ key, name, epoch: core.epoch, labels: options.labels }, { state: before });
    const begun = await core.send<OperationInfo>(post(`${core.path}/operations`, body, core));
    if (!(begun instanceof SetAside) && begun.replayed) return begun.result as T;
    if (begun instanceof SetAside && core.done.has(`operation ${key}`)) return known<T>(core, 'operation', key);
    const path = `${core.path}/operations/${segment(key)}`;
    let value: T;
    try {
      value = await work(new StepContext(key, begun instanceof SetAside ? undefined : begun.attempt, core.signal));
    } catch (thrown) {
      throw await failed(core, path, name, before, thrown);
    }
    const result = resultOf(value, `the result of operation ${name}`);
    await core.send(post(`${path}/succeed`, objectOf({ epoch: core.epoch }, { result: result.bytes }), core));
    return remember<T>(core, `operation ${key}`, value, result);
  } finally {
    core.busy--;
  }
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
