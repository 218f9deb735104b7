import type { Answer } from './ask.js';
import { decode } from './decode.js';
import { SidecarError } from './errors.js';
import { understood } from './problem.js';
import type { Checkpoint } from './wire.js';

/** A checkpoint with its state. */
export type Stored<S = any> = Checkpoint & {
  /** what was saved; the bytes where it was no JSON */
  state: S;
  /** the saved bytes, exactly; it does not show when the checkpoint is printed */
  readonly bytes: Buffer;
};

/** Cuts the state out of an answer, so that its bytes stay what they are. */
export function cutState(answer: Answer): { body: Buffer; state: Buffer | undefined } {
  const where = answer.headers['ckpt-state-range'];
  if (typeof where !== 'string') return { body: answer.body, state: undefined };
  const [first, last] = where.split('-').map(Number) as [number, number];
  if (!(first >= 1 && last >= first && last < answer.body.length)) {
    throw new SidecarError('internal', 'the answer of the daemon cannot be understood: its state is not at the stated place', { outcome: 'unknown' });
  }
  const before = answer.body.subarray(0, first);
  const value = answer.body.subarray(first, last + 1);
  const body = Buffer.concat([before, Buffer.from('null'), answer.body.subarray(last + 1)]);
  if (!before.subarray(-15).toString('latin1').endsWith('"state_base64":')) return { body, state: value };
  return { body, state: Buffer.from(value.subarray(1, -1).toString('latin1'), 'base64') };
}

/** Puts the state to its checkpoint, in place. */
export function withState<S>(checkpoint: Checkpoint, bytes: Buffer): Stored<S> {
  const read = checkpoint as Checkpoint & { state?: unknown; state_base64?: unknown };
  if ('state_base64' in read) delete read.state_base64;
  read.state = isJSON(read.content_type) ? decode(bytes) : new Uint8Array(bytes);
  return Object.defineProperty(read, 'bytes', { value: bytes, enumerable: false }) as Stored<S>;
}

/** The checkpoint of an answer, with its state. */
export function stored<S>(answer: Answer, write: boolean): Stored<S> {
  const { body, state } = cutState(answer);
  return withState<S>(understood<Checkpoint>({ ...answer, body }, write), state ?? Buffer.alloc(0));
}

/** Whether a content type is JSON, as the daemon sees it. */
export function isJSON(contentType: string): boolean {
  const type = contentType.split(';')[0]!.trim().toLowerCase();
  return type === 'application/json' || type.endsWith('+json');
}
