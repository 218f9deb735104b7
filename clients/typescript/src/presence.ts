import type { SidecarError } from './errors.js';
import { Unreached } from './unreached.js';

const moment = 50;

/** What is known of whether the daemon answers. */
export class Presence {
  private failure: SidecarError | undefined;
  private failedAt = -Infinity;

  /** Why the last call that waited in vain failed; undefined where the daemon answers, or is not known not to. */
  get error(): SidecarError | undefined {
    return this.failure;
  }

  /** It is there and says nothing. To ask it costs time, so that is done beside the calls and not in them. */
  get silent(): boolean {
    return this.failure instanceof Unreached && this.failure.timedOut;
  }

  /** It did not answer a moment ago, so that to ask it again now is in vain. */
  get awayJustNow(): boolean {
    return this.failure !== undefined && performance.now() - this.failedAt < moment;
  }

  answered(): void {
    this.failure = undefined;
  }

  failed(error: SidecarError): void {
    this.failure = error;
    this.failedAt = performance.now();
  }
}
