import { execFileSync } from 'node:child_process';
import { statSync } from 'node:fs';
import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';

export type Environment = Record<string, string | undefined>;

/** The environment variable that names the daemon's socket or pipe. */
export const socketVariable = 'CKPTSIDECAR_SOCKET';

const windows = process.platform === 'win32';
const pipe = '\\\\.\\pipe\\ckptsidecar';
const runtimeFolders = process.platform === 'linux' ? '/run/user' : '';
const socketName = 'ckptsidecar.sock';

/** The endpoint that the client was told to use, `""` where it must look for one. */
export function named(setting: string | undefined, env: Environment = process.env): string {
  const path = setting || env[socketVariable] || '';
  return path === '' || windows ? path : resolve(path);
}

/** The usual endpoints: the user's own, then the system's. */
export function usual(env: Environment = process.env): string[] {
  // Node cannot see who owns a pipe, and every user can create one with any free name. A user who has never run a daemon
  // of their own has none to look for.
  if (windows) return pipes(ownDatabase(env) ? ownSid() : '');
  const run = process.platform === 'darwin' ? '/var/run' : '/run';
  const own = absolute(env['XDG_RUNTIME_DIR']) || runtimeFolder(runtimeFolders, process.getuid!()) || stateFolder(env);
  return [...(own ? [join(own, socketName)] : []), join(run, 'ckptsidecar', socketName)];
}

/** The usual pipes on Windows: that of the user's own daemon, where the SID is known, then the service's. */
export function pipes(sid: string): string[] {
  return sid ? [`${pipe}-${sid}`, pipe] : [pipe];
}

let sid: string | undefined;

/** The SID of this process's user, `""` where it cannot be found. Windows is asked once. */
function ownSid(): string {
  if (sid !== undefined) return sid;
  try {
    const whoami = join(process.env['SystemRoot'] ?? 'C:\\Windows', 'System32', 'whoami.exe');
    sid = sidIn(execFileSync(whoami, ['/user', '/fo', 'csv', '/nh'], { encoding: 'utf8', timeout: 10_000, windowsHide: true, stdio: ['ignore', 'pipe', 'ignore'] }));
  } catch {
    sid = '';
  }
  return sid;
}

/** The SID in an answer of `whoami /user /fo csv /nh`: `"machine\user","S-1-5-…"`. Wine answers with a table that ends with the SID. */
export function sidIn(answer: string): string {
  return /[ "](S-1-[0-9-]+)"?\s*$/.exec(answer)?.[1] ?? '';
}

/** The folder that a login manager made for a user, `""` where there is none: cron sets no `XDG_RUNTIME_DIR`. */
export function runtimeFolder(above: string, uid: number): string {
  const folder = join(above, String(uid));
  const info = above ? statSync(folder, { throwIfNoEntry: false }) : undefined;
  return info?.isDirectory() && info.uid === uid ? folder : '';
}

/** Where the client looks for a daemon, in order. An endpoint that is named is the only one. */
export function candidates(setting: string | undefined, env: Environment = process.env): string[] {
  const one = named(setting, env);
  return one === '' ? usual(env) : [one];
}

/** What named the endpoint, for errors. */
export function origin(setting: string | undefined, env: Environment = process.env): string {
  const name = setting ? 'the setting socket' : env[socketVariable] ? socketVariable : '';
  return name === '' ? '' : ` (named by ${name})`;
}

/** The folder of the user's own daemon, `""` where no home is known. */
export function stateFolder(env: Environment = process.env): string {
  if (windows) {
    const local = absolute(env['LOCALAPPDATA']);
    return local && join(local, 'ckptsidecar');
  }
  const state = absolute(env['XDG_STATE_HOME']);
  if (state) return join(state, 'ckptsidecar');
  const home = absolute(env['HOME']) || absolute(homedir());
  return home ? join(home, '.local', 'state', 'ckptsidecar') : '';
}

/** The database of the user's own daemon, `""` where there is none in the usual place. */
export function ownDatabase(env: Environment = process.env): string {
  const folder = stateFolder(env);
  const path = folder && join(folder, 'ckpt.db');
  return path && statSync(path, { throwIfNoEntry: false })?.isFile() ? path : '';
}

/** Relative values count as none, as the XDG specification asks. */
export function absolute(path: string | undefined): string {
  return path && isAbsolute(path) ? path : '';
}
