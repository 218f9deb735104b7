import { randomUUID } from 'node:crypto';
import { readlinkSync } from 'node:fs';
import { open, readFile, stat, unlink, utimes } from 'node:fs/promises';
import { hostname } from 'node:os';

import { isMissing } from './spool.js';

const staleAfter = 120_000;
const touchEvery = 20_000;

/** The lock that keeps two from replaying one spool at once. It saves work; nothing is wrong where it fails. */
export class ReplayLock {
  private readonly timer: NodeJS.Timeout;

  private constructor(
    private readonly file: string,
    private readonly token: string,
    private readonly held: boolean,
  ) {
    this.timer = setInterval(() => void this.touch(), touchEvery);
    this.timer.unref();
  }

  /** Takes the lock; undefined where somebody else has it. Where it cannot be written, it is done without. */
  static async take(file: string): Promise<ReplayLock | undefined> {
    const token = randomUUID();
    for (let tries = 0; tries < 2; tries++) {
      const made = await make(file, token);
      if (made !== 'there') return new ReplayLock(file, token, made === 'made');
      if (!(await isStale(file))) return undefined;
      await unlink(file).catch(() => undefined);
    }
    return new ReplayLock(file, token, false);
  }

  /** Says that its holder lives. */
  async touch(): Promise<void> {
    if (!this.held) return;
    const now = new Date();
    await utimes(this.file, now, now).catch(() => undefined);
  }

  async release(): Promise<void> {
    clearInterval(this.timer);
    const holder = await read(this.file);
    if (holder?.token === this.token) await unlink(this.file).catch(() => undefined);
  }
}

interface Holder {
  pid: number;
  host: string;
  token: string;
}

/** Where a number names this process: the machine, and on Linux the process namespace too. Containers can have one name of a machine. */
function lockHost(): string {
  try {
    return `${hostname()} ${readlinkSync('/proc/self/ns/pid')}`;
  } catch {
    return hostname();
  }
}

async function make(path: string, token: string): Promise<'made' | 'there' | 'failed'> {
  const holder: Holder = { pid: process.pid, host: lockHost(), token };
  try {
    const file = await open(path, 'wx', 0o600);
    try {
      await file.writeFile(JSON.stringify(holder));
      return 'made';
    } catch {
      await unlink(path).catch(() => undefined); // nobody could tell whose it is
      return 'failed';
    } finally {
      await file.close();
    }
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EEXIST' ? 'there' : 'failed';
  }
}

async function read(file: string): Promise<Holder | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as Holder;
  } catch {
    return undefined; // gone, or being written just now
  }
}

async function isStale(file: string): Promise<boolean> {
  try {
    if (Date.now() - (await stat(file)).mtimeMs > staleAfter) return true;
  } catch (error) {
    return isMissing(error);
  }
  const holder = await read(file);
  return holder !== undefined && holder.host === lockHost() && !isThere(holder.pid);
}

function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
