// The spool: requests that wait on disk for a daemon. docs/SPOOL.md describes
// its form, which the clients of all languages share.

import { createHash } from 'node:crypto';
import { closeSync, constants, fsync, lstatSync, openSync, renameSync, type Stats, write, writeSync } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, readFile, rename, stat, unlink } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';

import type { Ask } from './ask.js';
import { type Environment, stateFolder } from './endpoint.js';
import { messageOf, SidecarError } from './errors.js';

/** A request that waits, as its file's first line has it. */
export interface SpoolHeader {
  version: number;
  method: string;
  path: string;
  query: string;
  headers: Record<string, string>;
  agent: string;
  run: string;
  endpoint: string;
  created_at: string;
  size: number;
  sha256: string;
  client: string;
}

/** What is known of a waiting request without its body. */
export interface Waiting {
  name: string;
  header: SpoolHeader;
}

/** A request that may be spooled. */
export interface SpoolAsk extends Ask {
  /** a UUIDv7: of the path of a PUT, the Idempotency-Key of a POST */
  id: string;
  agent: string;
  run: string;
}

export const fileName = /^([0-9a-f]{16})-([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})\.ckpt$/;
const mostHeader = 1 << 20;
const leftOver = 3_600_000; // a temporary file so old belongs to nobody
const noLinks = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0);
const windows = process.platform === 'win32';

/** Where the spool is by default; `""` where no home is known. */
export function spoolFolder(env: Environment = process.env): string {
  if (env['CKPTSIDECAR_SPOOL']) return resolve(env['CKPTSIDECAR_SPOOL']);
  const state = stateFolder(env);
  return state && join(state, 'spool');
}

export function spoolError(message: string, cause?: unknown): SidecarError {
  return new SidecarError('spool', message, { cause });
}

let lastOrder = 0n;
let files = Math.floor(Math.random() * 1e9); // threads of a process count apart

export class Spool {
  private checkedAt = -Infinity; // when the room was last looked at
  private used = 0;
  private inode: number | undefined;
  private handle: number | undefined; // of the folder, to flush it

  constructor(
    readonly folder: string,
    private readonly maxBytes: number,
    private readonly client: string,
  ) {}

  /** Puts a request on disk. When it returns, it waits there. */
  async add(ask: SpoolAsk, endpoint: string): Promise<void> {
    if (!this.folder) throw spoolError('there is no folder for the spool, because neither XDG_STATE_HOME nor HOME is set: name one with CKPTSIDECAR_SPOOL');
    const body = ask.body ?? Buffer.alloc(0);
    const header: SpoolHeader = {
      version: 1,
      method: ask.method,
      path: ask.path,
      query: ask.query ?? '',
      headers: { ...ask.headers },
      agent: ask.agent,
      run: ask.run,
      endpoint,
      created_at: new Date().toISOString(),
      size: body.length,
      sha256: createHash('sha256').update(body).digest('hex'),
      client: this.client,
    };
    const line = Buffer.from(JSON.stringify(header) + '\n', 'utf8');
    if (line.length > mostHeader) throw spoolError('the request cannot be spooled: without its state it is larger than 1 MiB');
    try {
      await this.tryAdd(ask.id, line, body).catch((error: unknown) => {
        if (!isMissing(error)) throw error;
        return this.tryAdd(ask.id, line, body); // the folder was removed just now
      });
    } catch (error) {
      if (error instanceof SidecarError) throw error;
      throw spoolError(`the spool ${this.folder} cannot be written: ${messageOf(error)}`, error);
    }
  }

  private async tryAdd(id: string, line: Buffer, body: Buffer): Promise<void> {
    await this.makeSafe();
    await this.makeRoom(line.length + body.length);
    await this.write(id, line, body);
  }

  /** What takes long is left to other threads; the rest is quicker done than handed over. */
  private async write(id: string, line: Buffer, body: Buffer): Promise<void> {
    const order = this.nextOrder();
    const temporary = join(this.folder, `.${order}-${process.pid}-${files++}.tmp`);
    const file = openSync(temporary, 'wx', 0o600);
    try {
      try {
        await writeAll(file, line);
        await writeAll(file, body);
        await sync(file);
      } finally {
        closeSync(file);
      }
      renameSync(temporary, join(this.folder, `${order}-${id}.ckpt`));
    } catch (error) {
      await unlink(temporary).catch(() => undefined);
      throw error;
    }
    if (this.handle !== undefined) await sync(this.handle);
    this.used += line.length + body.length;
  }

  private nextOrder(): string {
    const now = BigInt(Date.now()) * 1_000_000n;
    lastOrder = now > lastOrder ? now : lastOrder + 1n;
    if (lastOrder > 0xffff_ffff_ffff_ffffn) throw spoolError(`the spool ${this.folder} has a file with an impossible name that begins with ffff: move it away`);
    return lastOrder.toString(16).padStart(16, '0');
  }

  /** Makes the folder, and refuses one that others could change. */
  private async makeSafe(): Promise<void> {
    if (this.inode !== undefined && lstatSync(this.folder, { throwIfNoEntry: false })?.ino === this.inode) return;
    await mkdir(dirname(this.folder), { recursive: true });
    await mkdir(this.folder, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    const found = this.check() ?? lstatSync(this.folder); // which throws, because it was removed just now
    await this.names(); // so that what is written now comes after all that is there
    this.close();
    if (!windows) this.handle = openSync(this.folder, 'r'); // Windows flushes no folders; the rename is enough there
    this.inode = found.ino;
  }

  /** Refuses a folder that others could change. Undefined where there is none. */
  check(): Stats | undefined {
    const found = lstatSync(this.folder, { throwIfNoEntry: false });
    if (!found) return undefined;
    if (!found.isDirectory()) throw spoolError(`the spool ${this.folder} is not a folder: remove it, or name another with CKPTSIDECAR_SPOOL`);
    if (!windows && found.uid !== process.getuid!()) {
      throw spoolError(`the spool ${this.folder} belongs to another user: name a folder that you own with CKPTSIDECAR_SPOOL`);
    }
    if (!windows && (found.mode & 0o022) !== 0) {
      throw spoolError(`others may write to the spool ${this.folder}: take that right away with "chmod go-w ${this.folder}"`);
    }
    return found;
  }

  /** Lets go of the folder. */
  close(): void {
    if (this.handle !== undefined) closeSync(this.handle);
    this.handle = this.inode = undefined;
  }

  private async makeRoom(bytes: number): Promise<void> {
    const now = performance.now();
    if (now - this.checkedAt > (this.used > this.maxBytes / 2 ? 1000 : 30_000)) {
      this.used = (await folderBytes(this.folder)) + (await folderBytes(join(this.folder, 'rejected')));
      this.checkedAt = now;
    }
    if (this.used + bytes > this.maxBytes) {
      this.checkedAt = -Infinity;
      throw spoolError(
        `the spool ${this.folder} is full: it holds ${this.used} bytes and may hold ${this.maxBytes}; start the daemon, which empties it, look into its folder "rejected", or allow more with spool.maxBytes`,
      );
    }
  }

  /** The names of the requests that wait, in order. None where there is no spool. */
  async names(): Promise<string[]> {
    let found: string[];
    try {
      found = await readdir(this.folder);
    } catch (error) {
      if (isMissing(error)) return [];
      throw spoolError(`the spool ${this.folder} cannot be read: ${messageOf(error)}`, error);
    }
    const names = found.filter((name) => fileName.test(name)).sort();
    const greatest = names[names.length - 1];
    if (greatest) {
      const order = BigInt('0x' + greatest.slice(0, 16));
      if (order > lastOrder) lastOrder = order;
    }
    return names;
  }

  /** The first line of a file; undefined where the file is gone, null where it makes no sense. */
  async header(name: string): Promise<SpoolHeader | null | undefined> {
    let file: FileHandle;
    try {
      file = await open(join(this.folder, name), noLinks);
    } catch (error) {
      if (isMissing(error)) return undefined;
      if (isLink(error)) return null;
      throw error;
    }
    try {
      for (let size = 4096; ; size *= 16) {
        const buffer = Buffer.alloc(Math.min(size, mostHeader));
        const { bytesRead } = await file.read(buffer, 0, buffer.length, 0);
        const end = buffer.subarray(0, bytesRead).indexOf(10);
        if (end >= 0) return readHeader(buffer.subarray(0, end));
        if (bytesRead < buffer.length || size >= mostHeader) return null;
      }
    } finally {
      await file.close();
    }
  }

  /** All of a file: its header, null where that makes no sense, and its body. Undefined where it is gone. */
  async read(name: string): Promise<{ header: SpoolHeader | null; body: Buffer } | undefined> {
    let content: Buffer;
    try {
      content = await readFile(join(this.folder, name), { flag: noLinks });
    } catch (error) {
      if (isMissing(error)) return undefined;
      if (isLink(error)) return { header: null, body: Buffer.alloc(0) };
      throw error;
    }
    const end = content.indexOf(10);
    if (end < 0) return { header: null, body: content };
    return { header: readHeader(content.subarray(0, end)), body: content.subarray(end + 1) };
  }

  /** Removes what writers that died have left over. */
  async tidy(): Promise<void> {
    for (const name of await readdir(this.folder)) {
      if (!/^\..*\.tmp$/.test(name)) continue;
      const found = await stat(join(this.folder, name)).catch(() => undefined);
      if (found && Date.now() - found.mtimeMs > leftOver) await unlink(join(this.folder, name)).catch(() => undefined);
    }
  }

  async remove(name: string): Promise<void> {
    await unlink(join(this.folder, name)).catch((error: unknown) => {
      if (!isMissing(error)) throw error;
    });
    this.checkedAt = -Infinity;
  }

  /** Puts a file aside that the daemon will never take, with why. */
  async reject(name: string, why: { code: string; detail: string; status: number }): Promise<void> {
    const aside = join(this.folder, 'rejected');
    await mkdir(aside, { mode: 0o700, recursive: true });
    const file = await open(join(aside, name.replace(/\.ckpt$/, '.json')), 'w', 0o600);
    try {
      await file.writeFile(JSON.stringify({ ...why, at: new Date().toISOString() }) + '\n');
    } finally {
      await file.close();
    }
    await rename(join(this.folder, name), join(aside, name)).catch((error: unknown) => {
      if (!isMissing(error)) throw error;
    });
  }
}

function readHeader(line: Buffer): SpoolHeader | null {
  let read: Partial<SpoolHeader> | null;
  try {
    read = JSON.parse(line.toString('utf8')) as Partial<SpoolHeader> | null;
  } catch {
    return null;
  }
  if (read === null || typeof read !== 'object' || typeof read.version !== 'number') return null;
  if (read.version !== 1) return read as SpoolHeader; // another version's members are not ours to judge
  const texts = [read.method, read.path, read.query, read.agent, read.run, read.endpoint, read.created_at, read.sha256];
  const good = texts.every((text) => typeof text === 'string') && typeof read.size === 'number' && typeof read.headers === 'object' && read.headers !== null;
  return good ? (read as SpoolHeader) : null;
}

const sync = promisify(fsync);
const write_ = promisify(write);

async function writeAll(file: number, bytes: Buffer): Promise<void> {
  const least = 1 << 20; // from this size it takes long
  for (let at = 0; at < bytes.length; ) {
    if (bytes.length < least) at += writeSync(file, bytes, at);
    else at += (await write_(file, bytes, at, bytes.length - at, null)).bytesWritten;
  }
}

async function folderBytes(folder: string): Promise<number> {
  const names = await readdir(folder).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  let sum = 0;
  for (const name of names) {
    const found = await stat(join(folder, name)).catch(() => undefined);
    if (found?.isFile()) sum += found.size;
  }
  return sum;
}

function isLink(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | undefined)?.code === 'ELOOP';
}

export function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT';
}
