import type { SidecarError } from './errors.js';
import { Unreached } from './unreached.js';

/** What is known of whether the daemon answers. */
export class Presence {
  private failure: SidecarError | undefined;

  /** Why the last call that waited in vain failed; undefined where the daemon answers, or is not known not to. */
  get error(): SidecarError | undefined {
    return this.failure;
  }

  /** It is there and says nothing. To ask it costs time, so that is done beside the calls and not in them. */
  get silent(): boolean {
    return this.failure instanceof Unreached && this.failure.timedOut;
  }

  answered(): void {
    this.failure = undefined;
  }

  failed(error: SidecarError): void {
    this.failure = error;
  }
}
