// A daemon of a test's own, which can be stopped, killed, frozen and started again.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { Sidecar, type SidecarOptions } from 'ckptsidecar';

export const bin = process.env['CKPTSIDECAR_BIN'] ?? 'ckptsidecar';
export { sleep };

/** A folder that is gone after the test file. */
export function folder(): string {
  const path = mkdtempSync(join(tmpdir(), 'ckpt-ts-'));
  after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Compiled beside this file. */
export function script(name: string): string {
  return fileURLToPath(new URL(name, import.meta.url));
}

export class World {
  readonly dir = mkdtempSync(join(tmpdir(), 'ckpt-ts-'));
  readonly socket = join(this.dir, 's');
  readonly db = join(this.dir, 'ckpt.db');
  readonly spool = join(this.dir, 'spool');
  readonly warnings: string[] = [];
  private readonly settings: string[];
  private child: ChildProcess | undefined;
  private over = false;
  private readonly clients: Sidecar[] = [];

  constructor(...settings: string[]) {
    this.settings = settings.flatMap((setting) => ['--set', setting]);
    after(async () => {
      this.over = true;
      for (const client of this.clients) client.close();
      await this.stop('SIGKILL');
      rmSync(this.dir, { recursive: true, force: true, maxRetries: 5 });
    });
  }

  static async start(...settings: string[]): Promise<World> {
    const world = new World('monitor.interval=50ms', ...settings);
    await world.start();
    return world;
  }

  /** Starts the daemon, and waits until it is ready. */
  async start(): Promise<void> {
    if (this.over) throw new Error('the test is over');
    const child = spawn(bin, ['serve', '--db', this.db, '--socket', this.socket, ...this.settings], { stdio: ['ignore', 'ignore', 'pipe'] });
    this.child = child;
    await new Promise<void>((ready, failed) => {
      let log = '';
      child.stderr!.on('data', (text: Buffer) => {
        log += String(text);
        if (log.includes('msg=ready')) ready();
      });
      child.once('exit', (code) => failed(new Error(`the daemon ended with ${code}: ${log}`)));
    });
  }

  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    const child = this.child;
    if (!child) return;
    this.child = undefined;
    const ended = child.exitCode === null && child.signalCode === null ? new Promise((done) => child.once('exit', done)) : undefined;
    child.kill('SIGCONT');
    child.kill(signal);
    await ended;
  }

  freeze(): void {
    this.child!.kill('SIGSTOP');
  }

  thaw(): void {
    this.child!.kill('SIGCONT');
  }

  /** What a child process needs to find the daemon and the spool. */
  get env(): Record<string, string> {
    return { ...(process.env as Record<string, string>), CKPTSIDECAR_SOCKET: this.socket, CKPTSIDECAR_SPOOL: this.spool };
  }

  client(options: SidecarOptions = {}): Sidecar {
    const onWarning = (message: string): void => void this.warnings.push(message);
    const client = new Sidecar({ socket: this.socket, onWarning, ...options, spool: { folder: this.spool, ...options.spool } });
    this.clients.push(client);
    return client;
  }

  /** The requests that wait in the spool. */
  spooled(sub = ''): string[] {
    try {
      return readdirSync(join(this.spool, sub)).filter((name) => name.endsWith('.ckpt'));
    } catch {
      return [];
    }
  }

  /** The command, with this daemon. */
  run(...args: string[]): string {
    return execFileSync(bin, args, { env: this.env, encoding: 'utf8' });
  }
}

/** Waits until something is so, and fails where it is not in time. */
export async function until(what: string, is: () => boolean | Promise<boolean>, within = 60_000): Promise<void> {
  for (const end = Date.now() + within; Date.now() < end; await sleep(10)) if (await is()) return;
  throw new Error(`${what}: not in ${within} ms`);
}

/** Runs a compiled script to its end. */
export function child(name: string, env: Record<string, string>, ...args: string[]): ChildProcess & { output: () => string; ended: Promise<{ code: number | null; signal: string | null }> } {
  const process_ = spawn(process.execPath, [script(name), ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  process_.stdout.on('data', (part: Buffer) => (text += String(part)));
  process_.stderr.on('data', (part: Buffer) => (text += String(part)));
  const ended = new Promise<{ code: number | null; signal: string | null }>((done) => process_.once('close', (code, signal) => done({ code, signal })));
  return Object.assign(process_, { output: () => text, ended });
}

export function quantile(values: number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? NaN;
}
