import type { Answer } from './ask.js';
import { type Code, type Outcome, SidecarError } from './errors.js';

/** The error of an answer that is none of success: application/problem+json, or something else that answers there. */
export function problemOf(answer: Answer, write: boolean): SidecarError {
  const { status } = answer;
  const problem = read(answer.body);
  if (!problem) {
    const broken = status >= 500 || status < 400;
    return new SidecarError(broken ? 'internal' : 'invalid', `the daemon refused the request with HTTP status ${status}`, {
      status,
      outcome: broken && write ? 'unknown' : 'not_saved',
    });
  }
  const seconds = Number(answer.headers['retry-after']);
  return new SidecarError(problem.code, problem.detail, {
    status,
    outcome: problem.outcome,
    ...(seconds > 0 ? { retryAfter: seconds * 1000 } : {}),
  });
}

function read(body: Buffer): { code: Code; detail: string; outcome: Outcome } | undefined {
  try {
    const problem = JSON.parse(body.toString('utf8')) as { code?: unknown; detail?: unknown; outcome?: unknown } | null;
    if (!problem || typeof problem.code !== 'string') return undefined;
    return { code: problem.code as Code, detail: String(problem.detail), outcome: (problem.outcome ?? 'not_saved') as Outcome };
  } catch {
    return undefined;
  }
}

const passing: Code[] = ['no_daemon', 'busy', 'quota'];
const passingForWrites: Code[] = [...passing, 'storage_full', 'internal', 'corrupt', 'not_replicated'];

/** Whether an error may be gone when the request is sent again later. */
export function passes(error: SidecarError, write: boolean): boolean {
  return (write ? passingForWrites : passing).includes(error.code);
}

/** The JSON of a good answer. */
export function understood<T>(answer: Answer, write: boolean): T {
  try {
    const value = JSON.parse(answer.body.toString('utf8')) as T;
    if (value !== null && typeof value === 'object') return value;
  } catch {
    // below
  }
  throw new SidecarError('internal', "the daemon's answer cannot be read: install the same version of client and daemon", {
    status: answer.status,
    outcome: write ? 'unknown' : 'not_saved',
  });
}
