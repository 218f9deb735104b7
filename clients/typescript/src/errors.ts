/** What classifies an error for programs. The daemon's own codes, and some of the client's. */
export type Code =
  | 'invalid'
  | 'denied'
  | 'not_found'
  | 'conflict'
  /** nobody knows whether an operation took effect, or a person must decide how the run goes on */
  | 'uncertain_operation'
  | 'fenced'
  | 'base_missing'
  | 'files_missing'
  | 'too_large'
  | 'idempotency_mismatch'
  | 'schema_mismatch'
  | 'quota'
  | 'busy'
  | 'corrupt'
  | 'storage_full'
  | 'not_replicated'
  | 'internal'
  /** nobody answers at the endpoint; the message says what to do */
  | 'no_daemon'
  /** the spool is full or cannot be written */
  | 'spool'
  /** a value would not come back unchanged, and the option refuses that */
  | 'not_serializable'
  /** an operation was not begun, because the daemon is away */
  | 'offline'
  /** the run's owner is alive, or nothing of it reads back intact */
  | 'unsafe'
  /** the run was asked to stop */
  | 'interrupted'
  /** what was done inside an operation threw */
  | 'operation_failed';

/** What is known of a write that was answered with an error. */
export type Outcome = 'saved' | 'not_saved' | 'unknown';

export interface SidecarErrorOptions {
  outcome?: Outcome;
  /** the HTTP status, where there was an answer */
  status?: number;
  /** how long the daemon asks to wait, in milliseconds */
  retryAfter?: number;
  cause?: unknown;
}

/** The error of everything here. Tell errors apart by `code`, not by `instanceof`: a program may load this package twice. */
export class SidecarError extends Error {
  readonly code: Code;
  readonly outcome: Outcome;
  readonly status: number | undefined;
  readonly retryAfter: number | undefined;

  constructor(code: Code, message: string, options: SidecarErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'SidecarError';
    this.code = code;
    this.outcome = options.outcome ?? 'not_saved';
    this.status = options.status;
    this.retryAfter = options.retryAfter;
  }

  /** Whether the same request may succeed later, unchanged. */
  get retryable(): boolean {
    return ['busy', 'quota', 'storage_full', 'not_replicated', 'no_daemon'].includes(this.code) || this.outcome === 'unknown';
  }
}

export function invalid(message: string): SidecarError {
  return new SidecarError('invalid', message);
}

/** Whether an error is ours, of any copy of this package. */
export function isSidecarError(error: unknown, code?: Code): error is SidecarError {
  return error instanceof Error && error.name === 'SidecarError' && (code === undefined || (error as SidecarError).code === code);
}

/** The words of whatever was thrown. */
export function messageOf(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message || thrown.name;
  try {
    return String(thrown);
  } catch {
    return 'a value without a message was thrown';
  }
}
