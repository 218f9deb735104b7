import { createHash } from 'node:crypto';
import { join } from 'node:path';

import type { Answer, Ask } from './ask.js';
import { usual } from './endpoint.js';
import { isSidecarError, messageOf, SidecarError } from './errors.js';
import { ReplayLock } from './lock.js';
import { passes } from './problem.js';
import { type Spool, type SpoolHeader, fileName } from './spool.js';

/** What a replay did. */
export interface ReplayReport {
  /** how many requests the daemon has taken */
  sent: number;
  /** those that it refused for good, and why; they are in the spool's folder `rejected` */
  rejected: { file: string; agent: string; run: string; code: string; detail: string }[];
  /** how many still wait */
  left: number;
}

/** Sends once and throws what is no good answer, problems included. */
export type Send = (ask: Ask) => Promise<Answer>;

const puts = /^\/v1\/agents\/[^/]+\/checkpoints\/([0-9a-f-]{36})$/;
const posts = /^\/v1\/agents\/[^/]+\/runs\/[^/]+\/(steps(\/[^/]+\/finish)?|operations(\/[^/]+\/(succeed|fail|doubt))?|events|end)$/;

/** Of one agent's run. */
export function runKey(agent: string, run: string): string {
  return `${agent}/${run}`; // neither has a slash
}

/** Sends what waits in a spool to one daemon, in order, each run as far as it goes. */
export class Replayer {
  private readonly known = new Map<string, SpoolHeader | null>(); // headers of files that were there before
  private readonly settled = new Set<string>(); // files that were sent or refused, and could not be moved

  constructor(
    readonly spool: Spool,
    private readonly tell: (message: string) => void,
  ) {}

  /** The runs of which requests wait for the daemon at an endpoint, with the files' names in order. */
  async waiting(endpoint: string | undefined): Promise<Map<string, string[]>> {
    const names = await this.spool.names();
    if (names.length > 0) this.spool.check();
    const runs = new Map<string, string[]>();
    const there = new Set(names);
    for (const name of this.known.keys()) if (!there.has(name)) this.known.delete(name);
    for (const name of this.settled) if (!there.has(name)) this.settled.delete(name);
    for (const name of names) {
      if (this.settled.has(name)) continue;
      if (!this.known.has(name)) {
        const header = await this.spool.header(name);
        if (header === undefined) continue;
        this.known.set(name, header);
      }
      const header = this.known.get(name)!;
      if (header === null) {
        await this.damaged(name, 'its first line makes no sense');
        continue;
      }
      if (header.version !== 1 || !belongs(header, endpoint)) continue;
      const key = runKey(header.agent, header.run);
      const list = runs.get(key);
      if (list) list.push(name);
      else runs.set(key, [name]);
    }
    return runs;
  }

  /**
   * Replays what waits for one endpoint, of one run or of all, until `over`
   * says so. Undefined where somebody else is at it.
   */
  async replay(endpoint: string, send: Send, only: string | undefined, over: () => boolean): Promise<ReplayReport | undefined> {
    const report: ReplayReport = { sent: 0, rejected: [], left: 0 };
    const runs = await this.waiting(endpoint);
    const names = only === undefined ? [...runs.values()].flat().sort() : (runs.get(only) ?? []);
    if (names.length === 0) return report;
    const lock = await ReplayLock.take(join(this.spool.folder, 'replay.lock'));
    if (!lock) return undefined;
    try {
      const stuck = new Set<string>();
      for (const name of names) {
        const header = this.known.get(name);
        if (!header) continue;
        const key = runKey(header.agent, header.run);
        if (stuck.has(key) || over()) {
          report.left++;
          continue;
        }
        await lock.touch();
        if (await this.one(name, send, report)) continue;
        stuck.add(key);
        report.left++;
      }
      await this.spool.tidy();
    } finally {
      await lock.release();
    }
    return report;
  }

  /** Sends one file. False where it must wait. */
  private async one(name: string, send: Send, report: ReplayReport): Promise<boolean> {
    const file = await this.spool.read(name);
    if (!file) return true; // another replayer was faster
    const { header, body } = file;
    const fault = header === null ? 'its first line makes no sense' : faultOf(name, header, body);
    if (header === null || fault !== undefined) {
      await this.damaged(name, fault ?? '');
      return true;
    }
    try {
      await send({
        method: header.method as 'PUT' | 'POST',
        path: header.path,
        query: header.query,
        headers: { ...header.headers, 'Ckpt-Spooled': header.created_at },
        body,
        write: true,
        repeatable: true,
      });
    } catch (error) {
      if (!isSidecarError(error) || passes(error, true)) return false;
      await this.refused(name, header, error, report);
      return true;
    }
    report.sent++;
    await this.moved(name, this.spool.remove(name));
    return true;
  }

  private async refused(name: string, header: SpoolHeader, error: SidecarError, report: ReplayReport): Promise<void> {
    const { code, message: detail } = error;
    report.rejected.push({ file: name, agent: header.agent, run: header.run, code, detail });
    const kept = await this.putAside(name, { code, detail, status: error.status ?? 0 });
    this.tell(`the daemon refused what agent ${header.agent}, run ${header.run}, had spooled at ${header.created_at} (${code}: ${detail}); it is kept in ${kept}`);
  }

  private async damaged(name: string, why: string): Promise<void> {
    this.known.delete(name);
    const kept = await this.putAside(name, { code: 'corrupt', detail: why, status: 0 });
    this.tell(`a file of the spool is damaged (${why}); it is kept in ${kept}`);
  }

  /** Answers where the file is then. */
  private async putAside(name: string, why: Parameters<Spool['reject']>[1]): Promise<string> {
    const aside = await this.moved(name, this.spool.reject(name, why));
    return join(this.spool.folder, aside ? 'rejected' : '', name);
  }

  /** A file that cannot be moved stays where it is and waits no more: the daemon has answered it. */
  private async moved(name: string, move: Promise<void>): Promise<boolean> {
    try {
      await move;
      return true;
    } catch (error) {
      this.settled.add(name);
      this.tell(`${name} of the spool ${this.spool.folder} was answered, but can be neither removed nor put aside: ${messageOf(error)}`);
      return false;
    }
  }
}

/** Whether a request waits for the daemon at an endpoint. Where its client had found none, it is for any that it would have found. */
function belongs(header: SpoolHeader, endpoint: string | undefined): boolean {
  if (endpoint === undefined) return true;
  return header.endpoint === endpoint || (header.endpoint === '' && usual().includes(endpoint));
}

/** Why a file must not be sent, or gone by. */
export function faultOf(name: string, header: SpoolHeader, body: Buffer): string | undefined {
  const id = fileName.exec(name)?.[2] ?? '';
  if (body.length !== header.size) return `its body has ${body.length} bytes and not the ${header.size} that it should have`;
  if (createHash('sha256').update(body).digest('hex') !== header.sha256) return 'its body has not the hash that it should have';
  if (header.method === 'PUT' && puts.exec(header.path)?.[1] === id) return undefined;
  const key = Object.entries(header.headers).find(([name]) => name.toLowerCase() === 'idempotency-key')?.[1];
  if (header.method === 'POST' && posts.test(header.path) && key === id) return undefined;
  return 'it is no request that a client would have spooled under this name';
}
