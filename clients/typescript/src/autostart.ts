import { spawn } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';

import { sleep } from './duration.js';
import { stateFolder } from './endpoint.js';
import { messageOf, SidecarError } from './errors.js';
import { findDaemon } from './unreached.js';

const patience = 10_000;
/** The exit code of a daemon that finds another one in its place. */
const another = 4;

/**
 * Starts the user's own daemon, which outlives this process, and waits until
 * one answers at one of the paths. It need not be the one that was started:
 * where several clients do so at once, one daemon remains.
 */
export async function autostart(socket: string | undefined, paths: () => string[]): Promise<void> {
  const program = findDaemon();
  if (!program) {
    throw new SidecarError('no_daemon', 'no daemon answers, and none can be started: there is no ckptsidecar on PATH; get it with "go install github.com/ckptsidecar/ckptsidecar/cmd/ckptsidecar@latest"');
  }
  const log = openLog();
  const child = spawn(program, socket ? ['serve', '--socket', socket] : ['serve'], {
    detached: true,
    stdio: ['ignore', 'ignore', log?.file ?? 'ignore'],
    windowsHide: true,
    cwd: stateFolder() && log ? stateFolder() : undefined,
  });
  let ended: string | undefined;
  child.once('error', (error) => (ended = messageOf(error)));
  child.once('exit', (code) => {
    if (code !== another) ended = `it ended with exit code ${code}`;
  });
  child.unref();
  if (log) closeSync(log.file);
  for (const until = Date.now() + patience; Date.now() < until; await sleep(20)) {
    for (const path of paths()) if (await answers(path)) return;
    if (ended) break;
  }
  throw new SidecarError('no_daemon', `"${program} serve" was started, but ${ended ?? `it does not answer after ${patience / 1000} seconds`}${lastLine(log?.path)}`);
}

function openLog(): { path: string; file: number } | undefined {
  const folder = stateFolder();
  if (!folder) return undefined;
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const path = join(folder, 'autostart.log');
    return { path, file: openSync(path, 'a', 0o600) };
  } catch {
    return undefined; // it starts without a log
  }
}

function lastLine(path: string | undefined): string {
  if (!path) return '';
  try {
    const line = readFileSync(path, 'utf8').trim().split('\n').pop();
    return line ? `: ${line}` : '';
  } catch {
    return '';
  }
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    const done = (yes: boolean) => () => {
      socket.destroy();
      resolve(yes);
    };
    socket.once('connect', done(true));
    socket.once('error', done(false));
  });
}
