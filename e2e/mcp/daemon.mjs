// A real daemon in a folder of its own, and the command that hosts start.
import { spawn, execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as pause } from 'node:timers/promises';

const root = fileURLToPath(new URL('../..', import.meta.url));

export const bin = process.env.CKPTSIDECAR_BIN ?? built();

function built() {
  const file = join(root, 'dist', process.platform === 'win32' ? 'ckptsidecar.exe' : 'ckptsidecar');
  execFileSync('go', ['build', '-o', file, './cmd/ckptsidecar'], { cwd: root, stdio: 'inherit', env: { ...process.env, CGO_ENABLED: '0' } });
  return file;
}

/** Starts a daemon, and waits until it answers. */
export async function startDaemon() {
  const folder = mkdtempSync(join(tmpdir(), 'mcp-'));
  const socket = process.platform === 'win32' ? `\\\\.\\pipe\\${basename(folder)}` : join(folder, 's');
  const child = spawn(bin, ['serve', '--db', join(folder, 'ckpt.db'), '--socket', socket], {
    env: { ...process.env, HOME: folder, XDG_CONFIG_HOME: folder },
    stdio: 'ignore',
  });
  const run = (...args) => execFileSync(bin, [...args, '--socket', socket], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  for (let tries = 0; ; tries++) {
    try {
      run('status');
      break;
    } catch (error) {
      if (tries === 200) throw error;
      await pause(50);
    }
  }
  return {
    socket,
    run,
    stop() {
      const ended = new Promise((done) => child.on('exit', done));
      child.kill('SIGKILL');
      return ended.then(() => rmSync(folder, { recursive: true, force: true }));
    },
  };
}
