import { invalid } from './errors.js';

/** A length of time: milliseconds, or text such as `"30s"`, `"15m"`, `"1h30m"`, `"7d"`. */
export type Duration = number | string;

const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Milliseconds. `what` names the setting in the error. */
export function milliseconds(duration: Duration, what: string): number {
  const ms = typeof duration === 'number' ? duration : parse(duration);
  if (!Number.isFinite(ms) || ms < 0) {
    throw invalid(`${what} is ${JSON.stringify(duration)}: give milliseconds, or text such as "30s", "15m" or "1h30m"`);
  }
  return ms;
}

function parse(text: string): number {
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return NaN;
  let sum = 0;
  for (const [, n, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) sum += Number(n) * (units[unit!] ?? NaN);
  return sum;
}

/** The form in which the daemon takes it. */
export function onTheWire(ms: number): string {
  return `${Math.ceil(ms)}ms`;
}

export const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
