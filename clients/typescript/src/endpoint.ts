import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';

export type Environment = Record<string, string | undefined>;

/** The environment variable that names the daemon's socket or pipe. */
export const socketVariable = 'CKPTSIDECAR_SOCKET';

const windows = process.platform === 'win32';
const pipe = '\\\\.\\pipe\\ckptsidecar';
const socketName = 'ckptsidecar.sock';

/** The endpoint that the client was told to use, `""` where it must look for one. */
export function named(setting: string | undefined, env: Environment = process.env): string {
  const path = setting || env[socketVariable] || '';
  return path === '' || windows ? path : resolve(path);
}

/** The usual endpoints: the user's own, then the system's. */
export function usual(env: Environment = process.env): string[] {
  if (windows) return [pipe];
  const run = process.platform === 'darwin' ? '/var/run' : '/run';
  const own = absolute(env['XDG_RUNTIME_DIR']);
  const beside = stateFolder(env);
  const list = own ? [join(own, socketName)] : beside ? [join(beside, socketName)] : [];
  return [...list, join(run, 'ckptsidecar', socketName)];
}

/** Where the client looks for a daemon, in order. One that is named is the only one. */
export function candidates(setting: string | undefined, env: Environment = process.env): string[] {
  if (setting) return [named(setting, env)];
  const first = named(undefined, env);
  return [...new Set([first, ...usual(env)].filter((path) => path !== ''))];
}

/** The folder of the user's own daemon, `""` where no home is known. */
export function stateFolder(env: Environment = process.env): string {
  const state = absolute(env['XDG_STATE_HOME']);
  if (state) return join(state, 'ckptsidecar');
  const home = absolute(env['HOME']) || absolute(homedir());
  return home ? join(home, '.local', 'state', 'ckptsidecar') : '';
}

/** Relative values count as none, as the XDG specification asks. */
export function absolute(path: string | undefined): string {
  return path && isAbsolute(path) ? path : '';
}
