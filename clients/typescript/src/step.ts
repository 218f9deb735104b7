import { createHash } from 'node:crypto';

import { SetAside } from './backlog.js';
import type { Core } from './core.js';
import { decode } from './decode.js';
import { encode, type Encoded } from './encode.js';
import { messageOf, SidecarError } from './errors.js';
import { checkKey, objectOf, post, segment } from './requests.js';
import type { StepInfo } from './wire.js';

export interface StepOptions {
  /** what kind of call it is; otherwise the key without a counter, an id or a date at its end. Drift detection compares it */
  name?: string;
  /** its arguments, for the plan and the audit. Drift detection compares them: without them it has only the results */
  args?: unknown;
  /** the model's turn: the id of its answer that made this call. Equal calls of one turn count once for drift */
  turn?: string;
  /** whether the answer was no (a search that found nothing), which is no error. It is given the result, or what was thrown */
  negative?: (answer: unknown) => boolean;
}

/** The options of the steps that a tool makes. */
export type ToolOptions = Pick<StepOptions, 'turn' | 'negative'>;

/** What a step cost, and how far it brought the core. */
export interface Measures {
  inputTokens?: number;
  outputTokens?: number;
  costUsd?: number;
  progress?: number;
}

/** What the work of a step or an operation is given. */
export class StepContext {
  readonly measures: Measures = {};

  constructor(
    readonly key: string,
    /** 1 for the first time; undefined where the daemon is away */
    readonly attempt: number | undefined,
    /** aborted when the run is to stop */
    readonly signal: AbortSignal,
  ) {}

  /** Notes what it cost; what is noted again counts anew. */
  measure(measures: Measures): void {
    Object.assign(this.measures, measures);
  }
}

/** A longer result is not kept in memory. */
const mostKept = 4096;
/** Stands for a result that is not. */
const elsewhere = Symbol('elsewhere');

/** Makes each call of a function a step, with a key made of the name and the arguments. A call that is answered with an earlier result counts too. */
export function toolOf<A extends unknown[], T>(core: Core, name: string, fn: (...args: A) => T | Promise<T>, options: ToolOptions): (...args: A) => Promise<T> {
  checkKey('step name', name);
  return (...args) => {
    const hash = createHash('sha256').update(encode(args, 'refuse', `the arguments of ${name}`).bytes);
    return doStep(core, `${name}:${hash.digest('hex').slice(0, 16)}`, () => fn(...args), { ...options, name, args }, true);
  };
}

export async function doStep<T>(
  core: Core, key: string, work: (step: StepContext) => T | Promise<T>, options: StepOptions, call?: boolean,
): Promise<T> {
  core.mayBegin();
  checkKey('step key', key);
  const args = options.args === undefined ? undefined : encode(options.args, 'drop', `the arguments of step ${key}`).bytes;
  core.busy++;
  try {
    const begun = await core.send<StepInfo>(post(`${core.path}/steps`, objectOf({ key, name: options.name, epoch: core.epoch, turn: options.turn, call }, { args }), core));
    if (!(begun instanceof SetAside) && begun.replayed) return keep(core, `step ${key}`, begun.result as T);
    if (begun instanceof SetAside && isDone(core, 'step', key, begun)) return known<T>(core, 'step', key);
    const context = new StepContext(key, begun instanceof SetAside ? undefined : begun.attempt, core.signal);
    const began = performance.now();
    const finish = (status: 'succeeded' | 'failed', members: object, raw: Record<string, Buffer> = {}): Promise<unknown> => {
      const { inputTokens: input_tokens, outputTokens: output_tokens, costUsd: cost_usd, progress } = context.measures;
      const duration_ms = Math.round(performance.now() - began);
      const body = objectOf({ epoch: core.epoch, status, duration_ms, input_tokens, output_tokens, cost_usd, progress, ...members }, raw);
      return core.send(post(`${core.path}/steps/${segment(key)}/finish`, body, core));
    };
    let value: T;
    try {
      value = await work(context);
    } catch (thrown) {
      await told(core, thrown, finish('failed', { error: errorText(thrown), outcome: outcomeOf(core, key, thrown, options) }));
      throw thrown;
    }
    const result = resultOf(value, `the result of step ${key}`);
    await finish('succeeded', { outcome: outcomeOf(core, key, value, options) }, { result: result.bytes });
    return remember<T>(core, `step ${key}`, value, result);
  } finally {
    core.busy--;
  }
}

/** Asks whether the answer was no. The work has been done, so an error of the question is a warning alone. */
function outcomeOf(core: Core, key: string, answer: unknown, { negative }: StepOptions): 'negative' | undefined {
  try {
    return negative?.(answer) === true ? 'negative' : undefined;
  } catch (error) {
    core.delivery.settings.warn(`whether the answer of step ${key} was negative cannot be said: ${messageOf(error)}`);
    return undefined;
  }
}

/** Whether something was done before, when the daemon cannot be asked. */
export function isDone(core: Core, what: string, key: string, away: SetAside): boolean {
  if (core.done.has(`${what} ${key}`)) return true;
  if (core.allKnown) return false;
  throw new SidecarError('no_daemon', `it is not known whether ${what} ${key} was done before, while the daemon is away: ${away.reason.message}`, { cause: away.reason });
}

/** What was done before, when the daemon cannot be asked. */
export function known<T>(core: Core, what: string, key: string): T {
  const result = core.done.get(`${what} ${key}`);
  if (result !== elsewhere) return result as T;
  throw new SidecarError('no_daemon', `${what} ${key} succeeded, but its result cannot be read while the daemon is away`);
}

/** Remembers a result that came from the daemon. */
export function keep<T>(core: Core, what: string, result: T): T {
  core.done.set(what, resultOf(result, what).bytes.length <= mostKept ? result : elsewhere);
  return result;
}

/** What is returned now is what a resumed run is given. */
export function remember<T>(core: Core, what: string, value: T, result: Encoded): T {
  const same = result.dropped.length + result.simplified.length === 0 && value !== undefined;
  const given = same ? value : (decode(result.bytes) as T);
  core.done.set(what, result.bytes.length <= mostKept ? given : elsewhere);
  return given;
}

/** A result is never refused: what it came from has happened. */
export function resultOf(value: unknown, what: string): Encoded {
  const none = { bytes: Buffer.from('null'), dropped: [], simplified: [] };
  if (value === undefined) return none;
  try {
    return encode(value, 'drop', what);
  } catch (error) {
    return { ...none, dropped: [{ path: '', type: typeof value, reason: messageOf(error) }] };
  }
}

/** The words of whatever was thrown, and where they are evidence its type too. */
export function errorText(thrown: unknown, typed = false): string {
  const type = typed && thrown instanceof Error ? (thrown.name === 'Error' ? thrown.constructor.name : thrown.name) : '';
  const text = messageOf(thrown);
  return (type && type !== text ? `${type}: ${text}` : text).slice(0, 16_000);
}

/** Waits for the note of a failure. That it fails in turn must not hide what was thrown. */
export async function told(core: Core, thrown: unknown, note: Promise<unknown>): Promise<void> {
  try {
    await note;
  } catch (error) {
    core.delivery.settings.warn(`that something failed (${messageOf(thrown)}) could not be reported to the daemon: ${messageOf(error)}`);
  }
}
