import { lstatSync, realpathSync, statSync, type Stats } from 'node:fs';
import { basename, dirname, join } from 'node:path';

import { usual } from './endpoint.js';

const nobody = 65534; // a user who has no place in this user namespace
const firstPerson = process.platform === 'darwin' ? 500 : 1000;
const othersWrite = 0o022;
const everybodyWrites = 0o002;
const sticky = 0o1000;

/** The code of the error that says that another user listens. */
export const strangerCode = 'ESTRANGER';

/** What a socket was when it was looked at; `undefined` where there is none, or the system has none. */
export interface Seen {
  readonly dev: number;
  readonly ino: number;
}

/**
 * Looks whose socket it is. Throws where it belongs to anybody but root, this
 * user and the user of the service, or where anybody else could put another in
 * its place.
 *
 * The clients for Go and Python ask the kernel who listens. Node has no call for
 * that, so this looks at the files: the socket belongs to whom made it, and its
 * folder to whom may replace it. What this cannot see is a daemon that was
 * handed a socket which another user made; there the owner of the file counts.
 */
export function look(path: string): Seen | undefined {
  const self = process.geteuid?.();
  if (self === undefined) return undefined; // Windows: a pipe has no file
  const socket = lstat(path);
  if (!socket) return undefined; // connecting says what is wrong
  const { folder, at } = folderOf(path);
  if (!folder) return undefined;
  const owner = socket.uid;
  const trusted = owner === 0 || owner === self || isServiceUser(owner, path, folder, at);
  if (!trusted) throw stranger(owner, self);
  const keeper = folder.uid;
  const kept = keeper === 0 || keeper === self || keeper === owner;
  if (!kept) throw stranger(keeper, self);
  if ((folder.mode & othersWrite) !== 0 && (folder.mode & sticky) === 0) throw replaceable(at);
  const above = aboveOf(at).find((up) => (up.mode & everybodyWrites) !== 0 && (up.mode & sticky) === 0);
  if (above) throw replaceable(at);
  return { dev: socket.dev, ino: socket.ino };
}

/** Throws where the socket is not the one that was looked at before. */
export function lookAgain(path: string, before: Seen | undefined): void {
  const now = look(path);
  // One that is gone was removed by its daemon at its end, or by whoever may write in the folder.
  if (!before || !now || (now.dev === before.dev && now.ino === before.ino)) return;
  throw fail(`the socket was replaced while this process connected to it`);
}

/** Whether root has given the place of the socket to a user. The Go package endpoint has the same rule. */
function isServiceUser(uid: number, path: string, folder: Stats, at: string): boolean {
  if (uid === nobody || (folder.mode & othersWrite) !== 0) return false;
  if (folder.uid === 0) return aboveIsRoots(at, true);
  const service = path === usual().at(-1) || uid < firstPerson || (uid >= 61184 && uid <= 65519);
  return folder.uid === uid && service && aboveIsRoots(at, false);
}

/** Whether only root can change which folder this is. */
function aboveIsRoots(at: string, stickyCounts: boolean): boolean {
  return aboveOf(at).every((up) => up.uid === 0 && ((up.mode & othersWrite) === 0 || (stickyCounts && (up.mode & sticky) !== 0)));
}

function aboveOf(at: string): Stats[] {
  const all: Stats[] = [];
  for (let up = dirname(at), last = at; up !== last; last = up, up = dirname(up)) all.push(statSync(up));
  return all;
}

function folderOf(path: string): { folder: Stats | undefined; at: string } {
  try {
    const at = realpathSync(dirname(path));
    return { folder: statSync(at), at };
  } catch {
    return { folder: undefined, at: '' };
  }
}

function lstat(path: string): Stats | undefined {
  try {
    return lstatSync(join(realpathSync(dirname(path)), basename(path)));
  } catch {
    return undefined;
  }
}

function stranger(peer: number, self: number): Error {
  return fail(`uid ${peer} listens there, and this process is uid ${self}; it speaks only to root, to itself and to the user of the service`);
}

function replaceable(folder: string): Error {
  return fail(`others can write in ${folder} or above it, and so put another program in its place`);
}

function fail(message: string): Error {
  return Object.assign(new Error(message), { code: strangerCode });
}
