/** How a state goes to the daemon. */
export type How = 'whole' | 'change';

/** How often the slower way is tried again. */
const trial = 64;
/** How many saves are made in turns before there is a choice. */
const warmUp = 8;
/** What a new time counts against those before. */
const weight = 0.2;

interface Times {
  saves: number;
  whole: number | undefined;
  change: number | undefined;
}

/**
 * Which way has been the quicker one for states of about a size. To find what
 * changed and to hash it costs time as well, and a local socket is fast, so it
 * depends on the machine and on the daemon whether sending less pays.
 */
export class Pace {
  private readonly sizes = new Map<number, Times>();

  /** With `always` there is no choice. */
  constructor(private readonly always: How | undefined) {}

  /** How the next state of about this size is to go, or one some saves later. */
  next(size: number, later = 0): How {
    if (this.always) return this.always;
    const { whole, change, ...times } = this.times(size);
    const saves = times.saves + later;
    if (saves < warmUp || whole === undefined || change === undefined) return saves % 2 === 0 ? 'whole' : 'change';
    const quicker = change < whole ? 'change' : 'whole';
    if (saves % trial !== 0) return quicker;
    return quicker === 'whole' ? 'change' : 'whole';
  }

  /** Notes how long one took, in milliseconds. */
  took(size: number, how: How, ms: number): void {
    const times = this.times(size);
    const before = times[how];
    times[how] = before === undefined ? ms : before + weight * (ms - before);
    times.saves++;
  }

  private times(size: number): Times {
    const key = Math.round(2 * Math.log2(size));
    let times = this.sizes.get(key);
    if (!times) this.sizes.set(key, (times = { saves: 0, whole: undefined, change: undefined }));
    return times;
  }
}
