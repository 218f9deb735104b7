import { SetAside } from './backlog.js';
import { cutState, type Stored, withState } from './checkpoint.js';
import type { Core } from './core.js';
import { decode } from './decode.js';
import type { Delivery } from './delivery.js';
import { encode } from './encode.js';
import { isSidecarError, SidecarError } from './errors.js';
import { type Check, type Found, foundOf, isNotDone, Offline } from './once.js';
import { NeedsOperator, type Plan } from './plan.js';
import { passes, understood } from './problem.js';
import { checkKey, get, objectOf, post, queryOf, segment } from './requests.js';
import { errorText, keep, known, remember, resultOf, StepContext, told } from './step.js';
import type { Checkpoint, Labels, OperationInfo, OperationPage } from './wire.js';

export interface OperationOptions {
  /** what is done once in this run, and what a provider takes as its idempotency key; otherwise the name */
  key?: string;
  /** of the checkpoint that is taken before */
  labels?: Labels;
  /** its arguments, for the person who is asked if nobody knows how it ended */
  args?: unknown;
  /** the provider takes the key as its idempotency key, so it is repeated without a question */
  idempotent?: boolean;
  /** asked about an uncertain attempt before a person is: `new Done(result)`, `new NotDone()`, or undefined where it cannot tell */
  check?: Check;
  /** whether what was thrown means that nothing was done; NotDone always does */
  notDone?: (thrown: unknown) => boolean;
  /** `allow` begins it although the daemon is away, which otherwise throws Offline */
  offline?: 'refuse' | 'allow';
  /** the JSON Schema of the result that a person must give who says that it took effect */
  resultSchema?: Record<string, unknown>;
}

/** It is known that an operation was not done; `cause` is what said so. */
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
    /** who told that an uncertain attempt took effect: the identity of a person, `check` or `agent`; null for one that was never in doubt */
    readonly resolvedBy: string | null = null,
  ) {
    this.settled = replayed;
  }

  /** It was done. Answers the result as a resumed run gets it. */
  succeed(value?: T): Promise<T> {
    return this.settle(async () => {
      const result = resultOf(value, `the result of operation ${this.name}`);
      this.core.uncertain.set(this.key, 'its end could not be recorded');
      await this.core.send(post(`${this.path}/succeed`, objectOf({ epoch: this.core.epoch, attempt: this.context.attempt }, { result: result.bytes }), this.core));
      this.core.uncertain.delete(this.key);
      return remember<T>(this.core, `operation ${this.key}`, value as T, result);
    });
  }

  /** It is known that it was not done. Answers an error that offers the state from before. */
  fail(thrown: unknown): Promise<OperationFailed> {
    return this.settle(async () => {
      const error = await failed(this.core, this.path, this.name, this.before, this.context.attempt, thrown);
      this.core.uncertain.delete(this.key);
      return error;
    });
  }

  /** Nobody knows whether it took effect: a time-out, a lost connection, any error. It does not begin again before that is resolved. */
  doubt(thrown: unknown): Promise<void> {
    return this.settle(async () => {
      const error = errorText(thrown, true);
      this.core.uncertain.set(this.key, error);
      if (isSidecarError(thrown, 'fenced')) return; // the new owner's plan has it as uncertain
      await told(this.core, thrown, this.core.send(post(`${this.path}/doubt`, objectOf({ epoch: this.core.epoch, attempt: this.context.attempt, error }), this.core)));
    });
  }

  /** For `await using`: of an operation that is left without an end, nobody knows whether it took effect. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.settled) await this.doubt(new Error('the block ended before the operation succeeded'));
  }

  private get key(): string {
    return this.context.key;
  }

  private get path(): string {
    return `${this.core.path}/operations/${segment(this.key)}`;
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
  const args = options.args === undefined ? undefined : encode(options.args, 'drop', `the arguments of operation ${name}`).bytes;
  core.busy++;
  let open = false;
  try {
    const { idempotent, check, resultSchema, labels } = options;
    const members = { key, name, epoch: core.epoch, labels, idempotent: idempotent || undefined, check: check !== undefined || undefined, result_schema: resultSchema };
    const body = objectOf(members, { args, state: before });
    const begun = await begin(core, key, body, options);
    const away = begun instanceof SetAside;
    const replayed = away ? core.done.has(`operation ${key}`) : begun.replayed === true;
    const result = !replayed ? undefined : away ? known<T>(core, 'operation', key) : keep(core, `operation ${key}`, begun.result as T);
    open = !replayed;
    return new OpenOperation<T>(core, name, before, new StepContext(key, away ? undefined : begun.attempt, core.signal), replayed, result, away ? null : begun.resolved_by);
  } finally {
    if (!open) core.busy--;
  }
}

/** Begins it. Where nobody knows how an earlier attempt ended, its check is asked, and then a person. */
async function begin(core: Core, key: string, body: Buffer, options: OperationOptions): Promise<OperationInfo | SetAside> {
  try {
    return await ask(core, key, body, options);
  } catch (error) {
    if (!isSidecarError(error, 'uncertain_operation') || error instanceof NeedsOperator) throw error;
    await checked(core, key, options.check, error);
  }
  try {
    return await ask(core, key, body, options);
  } catch (error) {
    throw isSidecarError(error, 'uncertain_operation') ? await needsOperator(core, error, key) : error;
  }
}

async function ask(core: Core, key: string, body: Buffer, options: OperationOptions): Promise<OperationInfo | SetAside> {
  const path = `${core.path}/operations`;
  if (options.offline === 'allow' && (options.idempotent || !core.uncertain.has(key))) return core.send<OperationInfo>(post(path, body, core));
  // A beginning of which the answer did not come is asked again as it was: the daemon may have it already.
  const begun = core.begins.get(key) ?? post(path, body, core);
  core.begins.delete(key);
  try {
    return await core.direct<OperationInfo>(begun);
  } catch (error) {
    if (!isSidecarError(error)) throw error;
    if (error.outcome === 'unknown') core.begins.set(key, begun);
    if (!passes(error, true)) throw error;
    if (core.done.has(`operation ${key}`)) return new SetAside('nowhere', error); // it was done
    if (core.uncertain.has(key)) throw away(core, key);
    throw new Offline(key, error);
  }
}

/** Asks the operation's own check about the uncertain attempt. Throws NeedsOperator where that cannot tell. */
async function checked(core: Core, key: string, check: Check | undefined, refused: SidecarError): Promise<void> {
  const attempt = check && (await attemptOf(core, key, 'uncertain'));
  if (!attempt) throw await needsOperator(core, refused, key);
  let found: Found | undefined;
  let why = 'the check cannot tell';
  try {
    found = foundOf(await check(attempt));
  } catch (error) {
    why = `the check failed: ${errorText(error, true)}`;
    core.delivery.settings.warn(`of operation ${key} of run ${core.run}, ${why}`);
  }
  if (found) return resolveOperation(core.delivery, core, attempt, found);
  await core.send(post(`${core.path}/operations/${segment(key)}/doubt`, objectOf({ epoch: core.epoch, attempt: attempt.attempt, error: why }), core));
  throw await needsOperator(core, refused, key);
}

/** Tells the daemon what the agent's own code has found out about an uncertain attempt. */
export async function resolveOperation(delivery: Delivery, run: { agent: string; run: string }, attempt: OperationInfo, found: Found): Promise<void> {
  const { choice, reason, result } = found;
  const members = { choice, reason, attempt: attempt.attempt, check: true };
  const body = objectOf(members, { result: result === undefined ? undefined : encode(result, 'drop', `the result of operation ${attempt.key}`).bytes });
  const until = performance.now() + delivery.settings.deadline;
  await delivery.afterSpool(run, post(`/v1/agents/${run.agent}/runs/${run.run}/operations/${segment(attempt.key)}/resolve`, body, run), () => until);
}

/** The newest attempt of a key, or of any, that has a status. */
async function attemptOf(core: Core, key: string | undefined, status: string): Promise<OperationInfo | undefined> {
  try {
    const page = understood<OperationPage>(await core.delivery.call(get(`${core.path}/operations`, queryOf({ status, limit: 1000 }))), false);
    return page.operations.find((operation) => key === undefined || operation.key === key);
  } catch (error) {
    if (isSidecarError(error)) return undefined;
    throw error;
  }
}

/** The refusal with the plan and the three lines. */
export async function needsOperator(core: Core, refused: SidecarError, key?: string): Promise<NeedsOperator> {
  const found = (await attemptOf(core, key, 'uncertain')) ?? (await attemptOf(core, key, 'open'));
  return new NeedsOperator({ ...planOf(core), verdict: 'ask', reasons: [refused.message], uncertain_operations: found ? [found] : [] }, key, refused.message);
}

/** The same where the daemon is away. */
export function away(core: Core, key: string): NeedsOperator {
  const attempt = { key, name: key, attempt: 1, status: 'uncertain', started_at: '', error: core.uncertain.get(key) ?? null } as OperationInfo;
  return new NeedsOperator({ ...planOf(core), verdict: 'offline', uncertain_operations: [attempt] });
}

function planOf(core: Core): Plan {
  return core.plan ?? ({ reasons: [], agent: core.agent, run: core.run, uncertain_operations: [], prompt: null } as unknown as Plan);
}

/** Ends the operations of whose beginning no answer came: their work was not done, so no person need be asked. */
export async function endBegins(core: Core): Promise<void> {
  for (const [key, begun] of [...core.begins]) {
    core.begins.delete(key);
    try {
      const { replayed, attempt } = understood<OperationInfo>(await core.delivery.once(begun, core.delivery.settings.deadline), true);
      const error = 'the answer to its beginning did not come, so its work was not done';
      if (!replayed) await core.send(post(`${core.path}/operations/${segment(key)}/fail`, objectOf({ epoch: core.epoch, attempt, error }), core));
    } catch (error) {
      if (!isSidecarError(error)) throw error;
      core.delivery.settings.warn(`it is not known whether operation ${key} of run ${core.run} is open, though its work was not done: ${error.message}`);
    }
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
    if (isNotDone(thrown) || options.notDone?.(thrown) === true) throw await operation.fail(thrown);
    await operation.doubt(thrown);
    throw thrown;
  }
  return operation.succeed(value);
}

/** Tells the daemon, which gives the state back. */
async function failed(core: Core, path: string, name: string, before: Buffer | undefined, attempt: number | undefined, thrown: unknown): Promise<OperationFailed> {
  let checkpoint: Stored | null = null;
  const note = async (): Promise<void> => {
    const ask = post(`${path}/fail`, objectOf({ epoch: core.epoch, attempt, error: errorText(thrown) }), core);
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
