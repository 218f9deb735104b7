// A daemon of a test's own, in a folder of its own.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export class Daemon {
  dir = mkdtempSync(join(tmpdir(), 'ckpt-lg-'));
  socket = join(this.dir, 's');
  db = join(this.dir, 'ckpt.db');
  bin = process.env.CKPTSIDECAR_BIN ?? 'ckptsidecar';

  /** Starts it, and waits until it is ready. */
  async start() {
    const child = spawn(this.bin, ['serve', '--db', this.db, '--socket', this.socket], { stdio: ['ignore', 'ignore', 'pipe'] });
    this.child = child;
    await new Promise((ready, failed) => {
      let log = '';
      child.stderr.on('data', (text) => {
        log += text;
        if (log.includes('msg=ready')) ready();
      });
      child.once('exit', (code) => failed(new Error(`the daemon ended with ${code}: ${log}`)));
    });
    return this;
  }

  async stop(signal = 'SIGTERM') {
    const { child } = this;
    this.child = undefined;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((done) => child.once('exit', done));
    child.kill(signal);
    await ended;
  }

  async remove() {
    await this.stop('SIGKILL');
    rmSync(this.dir, { recursive: true, force: true, maxRetries: 5 });
  }
}
