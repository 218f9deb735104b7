import { messageOf } from './errors.js';

/** What is saved every so often. */
export interface Autosaved {
  /** who it is, for warnings */
  name: string;
  /** it has ended: nothing is to be saved any more */
  over(): boolean;
  /** saves it, where it has changed */
  save(): Promise<unknown>;
  warn(message: string): void;
  /** the autosave goes on no more */
  stopped(autosave: Autosave): void;
}

/** Saves something every so often, where it has changed. It does not keep the process alive. */
export class Autosave {
  private readonly timer: NodeJS.Timeout;
  private going: Promise<void> | undefined;
  private said = '';

  /** @internal */
  constructor(
    private readonly what: Autosaved,
    every: number,
  ) {
    this.timer = setInterval(() => void this.tick(), Math.max(every, 1));
    this.timer.unref();
  }

  /** Saves now, where it has changed. */
  async now(): Promise<void> {
    if (!this.what.over()) await this.what.save();
  }

  /** Saves once more, where it has changed, and no more after that. */
  async stop(): Promise<void> {
    this.cancel();
    await this.going;
    await this.now();
  }

  /** Saves no more. */
  cancel(): void {
    clearInterval(this.timer);
    this.what.stopped(this);
  }

  private tick(): Promise<void> {
    return (this.going ??= this.try().finally(() => (this.going = undefined)));
  }

  /** Nobody waits for it, so its errors are warnings, each told once. */
  private async try(): Promise<void> {
    try {
      await this.now();
      this.said = '';
    } catch (error) {
      const message = messageOf(error);
      if (message !== this.said && !this.what.over()) this.what.warn(`${this.what.name}, was not saved: ${message}`);
      this.said = message;
    }
  }
}
