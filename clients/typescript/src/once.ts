import { messageOf, SidecarError } from './errors.js';
import type { OperationInfo } from './wire.js';

/** Thrown inside an operation: it is known not to have happened. A check answers one to say the same. */
export class NotDone extends Error {
  override readonly name = 'NotDone';
}

/** What a check answers if the operation took effect, with its result. */
export class Done<T = any> {
  readonly done = true;

  constructor(readonly result?: T) {}
}

/** An operation was not begun, because the daemon is away; `cause` says why. */
export class Offline extends SidecarError {
  constructor(key: string, cause: SidecarError) {
    super(
      'offline',
      `operation ${key} was not begun, because the daemon is away (${cause.message}): start the daemon with "ckptsidecar serve" and run this again, or say offline: 'allow' where the operation is written`,
      { outcome: cause.outcome, cause },
    );
  }
}

/** Asked about an uncertain attempt; answers undefined where it cannot tell. */
export type Check = (attempt: OperationInfo) => Resolution | undefined | Promise<Resolution | undefined>;

/** What became of an uncertain operation, and how that is known. */
export type Resolution = Done | NotDone | 'succeeded' | 'failed' | { status: 'succeeded' | 'failed'; result?: unknown; reason?: string };

/** @internal What the agent's own code has found out. */
export interface Found {
  choice: 'it_did' | 'it_did_not';
  result?: unknown;
  reason: string;
}

/** @internal */
export function foundOf(told: Resolution | undefined): Found | undefined {
  const reason = "the agent's own code has found out";
  if (told === undefined || told === null) return undefined;
  if (isNotDone(told) || told === 'failed') return { choice: 'it_did_not', reason };
  if (told === 'succeeded') return { choice: 'it_did', reason };
  if ('done' in told) return { choice: 'it_did', result: told.result, reason };
  if ('status' in told) {
    const choice = told.status === 'succeeded' ? 'it_did' : 'it_did_not';
    return { choice, ...(choice === 'it_did' ? { result: told.result } : {}), reason: told.reason ?? reason };
  }
  throw new SidecarError('invalid', `a check answered ${messageOf(told)}: it answers new Done(result), new NotDone(), or undefined where it cannot tell`);
}

/** @internal Of any copy of this package. */
export function isNotDone(value: unknown): value is NotDone {
  return value instanceof Error && value.name === 'NotDone';
}
