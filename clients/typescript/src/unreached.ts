import { accessSync, constants, readFileSync, statSync } from 'node:fs';
import { userInfo } from 'node:os';
import { delimiter, dirname, join } from 'node:path';

import { socketVariable } from './endpoint.js';
import { SidecarError } from './errors.js';
import { strangerCode } from './trust.js';

const ownCode = 'EOWNDATABASE';
const away = ['ENOENT', 'ECONNREFUSED', ownCode];

/** No whole answer came from one endpoint. */
export class Unreached extends SidecarError {
  /** the connection was there, so the daemon may have got the request */
  readonly sent: boolean;
  readonly timedOut: boolean;
  /** the connection was an old one, which the daemon may have closed in between */
  readonly stale: boolean;
  /** there is no endpoint at all */
  readonly missing: boolean;
  /** somebody is there who is not trusted */
  readonly stranger: boolean;

  constructor(path: string, cause: Error & { code?: string }, how: { sent: boolean; timedOut: boolean; stale: boolean; write: boolean }) {
    super(how.sent || how.timedOut ? 'busy' : 'no_daemon', say(path, cause, how), { outcome: how.sent && how.write ? 'unknown' : 'not_saved', cause });
    this.sent = how.sent;
    this.timedOut = how.timedOut;
    this.stale = how.stale && how.sent;
    this.missing = !how.sent && cause.code === 'ENOENT';
    this.stranger = cause.code === strangerCode;
  }

  /** Nobody listens: a daemon would have to be started. */
  get nobody(): boolean {
    return !this.sent && away.includes((this.cause as { code?: string } | undefined)?.code ?? '');
  }
}

/** No endpoint is there. */
export function nobody(where: string): Unreached {
  const cause = Object.assign(new Error('none is there'), { code: 'ENOENT' });
  return new Unreached(where, cause, { sent: false, timedOut: false, stale: false, write: false });
}

/** Only the system's daemon is there, and the user has a database of an own daemon. */
export function refusedForOwn(path: string, database: string, own: string): Unreached {
  const cause = Object.assign(new Error(`your own database ${database} exists, and your own daemon does not answer at ${own}`), { code: ownCode });
  return new Unreached(path, cause, { sent: false, timedOut: false, stale: false, write: false });
}

function say(path: string, cause: Error & { code?: string }, how: { sent: boolean; timedOut: boolean; write: boolean }): string {
  const doubt = how.sent && how.write ? ', so it is not known whether this was done' : '';
  if (how.timedOut) return `the daemon at ${path} did not answer in time${doubt}`;
  if (how.sent) return `the connection to the daemon at ${path} broke before the answer came${doubt}: ${cause.message}`;
  switch (cause.code) {
    case strangerCode:
      return `refused to talk to the program at ${path}: ${cause.message}; name your own daemon with ${socketVariable}, or run this as that user`;
    case ownCode:
      return `refused to use the system's daemon at ${path}: ${cause.message}; start your own daemon with "ckptsidecar serve", or choose the system's with ${socketVariable}, or move your own database away`;
    case 'ENOENT':
      return `no daemon answers at ${path}: ${remedy()}`;
    case 'ECONNREFUSED':
      return `no daemon answers at ${path}; its socket is from a daemon that has ended: ${remedy()}`;
    case 'EACCES':
    case 'EPERM':
      return `not allowed to connect to ${path}: ${howToJoin(path)}, or name another endpoint with ${socketVariable}`;
    case 'EAGAIN':
      return `the daemon at ${path} cannot accept more connections now: try again later`;
  }
  return `cannot connect to ${path}: ${cause.message}`;
}

/** Names the group that may connect, and the command that lets this user in. */
function howToJoin(place: string): string {
  try {
    const path = place.split(' (named by ')[0]!;
    const info = statSync(path, { throwIfNoEntry: false }) ?? statSync(dirname(path));
    if ((info.mode & 0o060) === 0 || info.gid === 0) return 'only its owner may';
    const line = readFileSync('/etc/group', 'utf8').split('\n').find((l) => l.split(':')[2] === String(info.gid));
    const group = line?.split(':')[0] ?? String(info.gid);
    return `join the group ${group}, which owns it (sudo usermod -aG ${group} ${userInfo().username}, then log in again)`;
  } catch {
    return 'join the group that owns it';
  }
}

let looked = { at: -Infinity, found: false };

/** The one command that helps. */
function remedy(): string {
  const now = performance.now();
  if (now - looked.at > 1000) looked = { at: now, found: findDaemon() !== undefined };
  if (looked.found) return 'start one with "ckptsidecar serve", or let the client do it with autostart: true';
  return 'ckptsidecar is not installed; get it and start it with "go install github.com/ckptsidecar/ckptsidecar/cmd/ckptsidecar@latest && ckptsidecar serve"';
}

/** The daemon's program on PATH, undefined where there is none. */
export function findDaemon(env: Record<string, string | undefined> = process.env): string | undefined {
  const name = process.platform === 'win32' ? 'ckptsidecar.exe' : 'ckptsidecar';
  for (const folder of (env['PATH'] ?? '').split(delimiter)) {
    if (folder === '') continue;
    const file = join(folder, name);
    try {
      accessSync(file, constants.X_OK);
      if (statSync(file).isFile()) return file;
    } catch {
      // not here
    }
  }
  return undefined;
}
