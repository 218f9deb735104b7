// What the measurements have in common: a daemon of their own, and medians.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Starts a daemon in a folder of its own, below `where`. */
export async function daemon(where = process.cwd()) {
  const folder = mkdtempSync(join(tmpdir(), 'ckpt-bench-'));
  const data = mkdtempSync(join(where, '.bench-'));
  const socket = join(folder, 's');
  const child = spawn(process.env.CKPTSIDECAR_BIN ?? 'ckptsidecar', ['serve', '--db', join(data, 'ckpt.db'), '--socket', socket], { stdio: ['ignore', 'ignore', 'pipe'] });
  await new Promise((ready, failed) => {
    child.stderr.on('data', (text) => String(text).includes('msg=ready') && ready());
    child.on('exit', (code) => failed(new Error(`the daemon ended with ${code}`)));
  });
  return {
    socket,
    async stop() {
      child.removeAllListeners('exit');
      const ended = new Promise((done) => child.on('exit', done));
      child.kill();
      await ended;
      for (const path of [folder, data]) rmSync(path, { recursive: true });
    },
  };
}

export function quantile(values, q) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}
