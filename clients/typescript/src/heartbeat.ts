import type { Ask } from './ask.js';
import type { Core } from './core.js';
import type { DriftVerdict } from './drift.js';
import { milliseconds } from './duration.js';
import { isSidecarError, SidecarError } from './errors.js';
import { type Plan, planOf } from './plan.js';
import { understood } from './problem.js';
import { objectOf, post } from './requests.js';
import type { RunOptions } from './options.js';
import { register, timeouts } from './register.js';
import type { RunInfo } from './wire.js';

const patience = 5000;
const atOnce = (): number => 0; // nobody is to wait behind it

/** Says every so often that a run's owner lives. It does not keep the process alive. */
export class Heartbeat {
  progress: number | undefined;
  private readonly timer: NodeJS.Timeout;
  private beating = false;
  private asked = false; // whether a person must decide before the run is claimed

  constructor(
    private readonly core: Core,
    private readonly options: RunOptions,
  ) {
    const every = milliseconds(options.heartbeatEvery ?? 10_000, 'heartbeatEvery');
    this.timer = setInterval(() => void this.beat(), Math.max(every, 10));
    this.timer.unref();
  }

  stop(): void {
    clearInterval(this.timer);
  }

  private async beat(): Promise<void> {
    const { core } = this;
    if (this.beating || core.delivery.presence.silent) return;
    this.beating = true;
    try {
      if (core.epoch === undefined) await this.claim();
      else await this.tell(core.epoch);
    } catch (error) {
      core.noted(error); // other errors pass, or are told to who calls next
    } finally {
      this.beating = false;
    }
  }

  private async tell(epoch: number): Promise<void> {
    const body = objectOf({ epoch, progress: this.progress });
    const headers = { 'Content-Type': 'application/json' };
    const ask: Ask = { method: 'POST', path: `${this.core.path}/heartbeat`, headers, body, write: true, repeatable: true, background: true };
    this.core.drift.note(understood<RunInfo & { drift?: DriftVerdict }>(await this.core.delivery.once(ask, patience), true).drift);
  }

  /** A run that began without the daemon is registered when that is back. */
  private async claim(): Promise<void> {
    const { core } = this;
    try {
      if (!this.asked) {
        core.epoch = await register(core.delivery, core, this.options, atOnce);
        return;
      }
    } catch (error) {
      if (!isSidecarError(error, 'conflict')) throw error;
    }
    if (core.busy === 0) await this.resume(); // which would settle what is going on
  }

  /** It had been left unfinished before: what is done since goes on top. While a person must decide first, it only looks: each claim is recorded. */
  private async resume(): Promise<void> {
    const { core } = this;
    if (this.asked && (await this.planned(true)).verdict === 'ask') return;
    const plan = await this.planned();
    const name = `run ${core.run} of agent ${core.agent}`;
    const reasons = plan.reasons.join(' ');
    if (plan.claimed) core.epoch = plan.epoch;
    else if (plan.verdict !== 'ask') core.lose(new SidecarError('conflict', `${name} began while the daemon was away, and cannot go on: ${reasons}`));
    else if (!this.asked) core.delivery.settings.warn(`a person must decide before ${name} is claimed: ${reasons}`);
    this.asked = plan.verdict === 'ask';
  }

  private async planned(dryRun?: boolean): Promise<Plan> {
    const { core, options } = this;
    const body = objectOf({ pid: process.pid, ...timeouts(options), reason: 'it began while the daemon was away', dry_run: dryRun });
    try {
      return planOf(await core.delivery.afterSpool(core, post(`${core.path}/resume`, body, core), atOnce));
    } catch (error) {
      if (isSidecarError(error, 'conflict')) core.lose(error); // another host has the run
      throw error;
    }
  }
}
