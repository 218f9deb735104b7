import { createHash } from 'node:crypto';

import { SetAside } from './backlog.js';
import type { Delivery } from './delivery.js';
import { isJSON } from './checkpoint.js';
import type { Answer } from './ask.js';
import { diff } from './delta.js';
import type { DriftVerdict } from './drift.js';
import { encode, type Trace, type Unserializable } from './encode.js';
import { invalid, isSidecarError } from './errors.js';
import { type Held, BaseCache } from './base_cache.js';
import { Pace } from './pace.js';
import { understood } from './problem.js';
import { runKey, type Send } from './replay.js';
import { attachFiles, type FilesKept, filesProgram, noFiles } from './files.js';
import { checkKey, headerJSON, queryOf } from './requests.js';
import type { SpoolAsk } from './spool.js';
import { isUuid7, uuid7 } from './uuid.js';
import type { Checkpoint, Kind, Labels, Program } from './wire.js';

export interface SaveOptions {
  /** `routine` where it is missing */
  kind?: Kind;
  labels?: Labels;
  /** a JSON object of at most 64 KiB */
  metadata?: Record<string, unknown>;
  /** the checkpoint that this state came from; otherwise the run's newest, or the one restored last */
  parent?: string;
  /** a checkpoint of this user's that a new run begins with; it is a conflict where the run is there */
  forkFrom?: string;
  /** the key of the step that this state belongs to */
  step?: string;
  /** generated code, and how many bytes of it have run */
  program?: Program;
  /** of a state of bytes or text; other states are `application/json` */
  contentType?: string;
  /** saves a state of no bytes at all too, which is an error otherwise */
  allowEmpty?: boolean;
  /** for this save instead of the client's setting */
  unserializable?: Unserializable;
  /** a UUIDv7, for a caller who wants to repeat a save himself: the same id never saves twice */
  id?: string;
  /** a folder whose files are kept with the checkpoint, by the program ckptsidecar, which must be on PATH; see docs/FILES.md */
  files?: string;
}

interface Kept {
  /** of the checkpoint */
  id: string;
  agent: string;
  run: string;
  kind: Kind;
  /** bytes of the state */
  size: number;
  /** what of the state could not be saved */
  dropped: Trace[];
  /** what of the state is saved as something plainer */
  simplified: Trace[];
  /** where `files` was asked for */
  files?: FilesKept;
}

/** What became of a save. */
export type Saved =
  /** it is on the daemon's disk */
  | (Kept & Checkpoint & { stored: 'daemon'; pruned: string[]; replayed: boolean; drift?: DriftVerdict })
  /** the daemon is away; it is on disk in the spool, and is sent later */
  | (Kept & { stored: 'spool'; reason: string })
  /** the daemon is away and the spool failed, which was to be no error */
  | (Kept & { stored: 'nowhere'; reason: string });

const deltaType = 'application/vnd.ckptsidecar.delta';

/** Saves states, and sends only what changed where that is much less. */
export class Saver {
  private readonly held = new BaseCache();
  private readonly pace: Pace;

  constructor(private readonly delivery: Delivery) {
    const { whole } = delivery.settings;
    this.pace = new Pace(whole === undefined ? undefined : whole ? 'whole' : 'change');
  }

  async save(agent: string, run: string, epoch: number | undefined, state: unknown, options: SaveOptions): Promise<Saved> {
    return this.saveBytes(agent, run, epoch, encodeState(state, options, this.delivery.settings.unserializable), options);
  }

  async saveBytes(agent: string, run: string, epoch: number | undefined, state: EncodedState, options: SaveOptions): Promise<Saved> {
    if (options.files === undefined) return this.saveState(agent, run, epoch, state, options);
    const program = filesProgram();
    const saved = await this.saveState(agent, run, epoch, state, options);
    saved.files =
      saved.stored === 'daemon'
        ? await attachFiles(program, options.files, { id: saved.id, agent, run, epoch }, this.delivery.connection.endpoint)
        : noFiles('the daemon is away: the checkpoint has no files');
    return saved;
  }

  private async saveState(agent: string, run: string, epoch: number | undefined, state: EncodedState, options: SaveOptions): Promise<Saved> {
    const ask = saveAsk(agent, run, epoch, state, options);
    const { bytes, dropped, simplified } = state;
    if (dropped.length > 0) this.delivery.settings.warn(droppedText(agent, run, dropped));
    const key = runKey(agent, run);
    const large = BaseCache.takes(bytes.length) && this.delivery.settings.whole !== true;
    const transfer = large ? new Transfer(this.held, this.pace, key, bytes, state.contentType) : undefined;
    const answer = await this.delivery.write(ask, transfer && ((send, own) => transfer.send(send, own)));
    if (answer instanceof SetAside) {
      const kept: Kept = { id: ask.id, agent, run, kind: options.kind ?? 'routine', size: bytes.length, dropped, simplified };
      return { ...kept, stored: answer.stored, reason: answer.reason.message };
    }
    const checkpoint = understood<Checkpoint & { pruned: string[] }>(answer, true);
    transfer?.done(checkpoint);
    const replayed = answer.headers['idempotent-replayed'] === 'true';
    return Object.assign(checkpoint, { dropped, simplified, stored: 'daemon' as const, replayed }); // to spread it into a new object takes ten times as long
  }
}

const told = new Set<string>();

/** The same places are told of once. */
function droppedText(agent: string, run: string, dropped: Trace[]): string {
  const places = dropped.slice(0, 5).map((t) => `${t.path || 'the value itself'} (${t.type}) ${t.reason}`);
  const more = dropped.length > places.length ? `; and ${dropped.length - places.length} more` : '';
  const text = `of the state of agent ${agent}, run ${run}, this was dropped: ${places.join('; ')}${more}`;
  if (told.has(text)) return '';
  if (told.size > 1000) told.clear();
  told.add(text);
  return text;
}

/** A state as it is sent. */
export interface EncodedState {
  bytes: Buffer;
  contentType: string;
  dropped: Trace[];
  simplified: Trace[];
}

/** Bytes and, with a content type, text are saved as they are; all else is JSON. */
export function encodeState(state: unknown, options: SaveOptions, unserializable: Unserializable): EncodedState {
  const { contentType } = options;
  if (contentType !== undefined && !/^[!-~]([ -~]{0,253}[!-~])?$/.test(contentType)) {
    throw invalid(`the content type ${JSON.stringify(contentType)} is not valid: it must be 1 to 255 printable ASCII characters`);
  }
  const empty = state instanceof Uint8Array ? state.length === 0 : contentType !== undefined && state === '';
  if (empty && !options.allowEmpty) throw invalid('the state is empty, so nothing was saved: to save an empty state, say allowEmpty: true');
  const plain = { dropped: [], simplified: [] };
  if (state instanceof Uint8Array) {
    return { ...plain, bytes: Buffer.from(state), contentType: contentType ?? 'application/octet-stream' }; // a copy: the caller may go on to write into it
  }
  if (contentType !== undefined && typeof state === 'string') return { ...plain, bytes: Buffer.from(state, 'utf8'), contentType };
  if (contentType !== undefined && !isJSON(contentType)) {
    throw invalid(`a state of the content type ${contentType} is a string or a Uint8Array; leave contentType out for any other value`);
  }
  return { ...encode(state, options.unserializable ?? unserializable), contentType: contentType ?? 'application/json' };
}

function saveAsk(agent: string, run: string, epoch: number | undefined, state: EncodedState, o: SaveOptions): SpoolAsk {
  const id = o.id ?? uuid7();
  if (o.id !== undefined && !isUuid7(id)) throw invalid(`the id ${JSON.stringify(id)} of a save is not valid: it must be a UUID of version 7 in lower case`);
  if (o.step !== undefined) checkKey('step key', o.step);
  const query = queryOf({ kind: o.kind ?? 'routine', run, epoch, parent: o.parent, fork_from: o.forkFrom, step: o.step }, o.labels);
  const headers: Record<string, string> = { 'Content-Type': state.contentType };
  if (o.metadata && Object.keys(o.metadata).length > 0) headers['Ckpt-Metadata'] = headerJSON(o.metadata);
  if (o.program) headers['Ckpt-Program'] = headerJSON(o.program);
  return { method: 'PUT', path: `/v1/agents/${agent}/checkpoints/${id}`, query, headers, body: state.bytes, id, agent, run, write: true, repeatable: true };
}

/** One large state on its way. */
class Transfer {
  private base: Held | undefined;
  private change: Buffer | undefined;
  private sum: string | undefined;

  constructor(
    private readonly held: BaseCache,
    private readonly pace: Pace,
    private readonly key: string,
    private readonly state: Buffer,
    private readonly contentType: string,
  ) {}

  /** Sends what changed, where that has been quicker, and the whole where that is not much more or the daemon has no base. */
  async send(send: Send, whole: SpoolAsk): Promise<Answer> {
    const began = performance.now();
    const changed = this.pace.next(this.state.length) === 'change' ? await this.sendChange(send, whole) : undefined;
    const answer = changed ?? (await this.hashing(send(whole)));
    this.pace.took(this.state.length, changed ? 'change' : 'whole', performance.now() - began);
    return answer;
  }

  private async sendChange(send: Send, whole: SpoolAsk): Promise<Answer | undefined> {
    const base = this.held.get(this.key);
    if (base !== this.base) {
      this.base = base;
      this.change = base && diff(base.state, this.state);
    }
    if (!base || !this.change) return undefined;
    const query = `${whole.query ?? ''}&base=${base.id}&content_type=${encodeURIComponent(this.contentType)}`;
    const headers = { ...whole.headers, 'Content-Type': deltaType, 'Ckpt-Base-Sha256': base.sha256 };
    try {
      return await this.hashing(send({ ...whole, query, headers, body: this.change }));
    } catch (error) {
      if (!isSidecarError(error, 'base_missing')) throw error;
      this.held.drop(this.key);
      return undefined;
    }
  }

  /** Computes the hash while the daemon works. */
  private hashing(answer: Promise<Answer>): Promise<Answer> {
    if (this.sum === undefined && this.isBase) setImmediate(() => this.hash());
    return answer;
  }

  private hash(): string {
    return (this.sum ??= createHash('sha256').update(this.state).digest('hex'));
  }

  /** Whether the next state is to be sent as a change to this one. It is guessed before this one's time is known. */
  private get isBase(): boolean {
    return this.pace.next(this.state.length, 1) === 'change';
  }

  /** Keeps the state for the next save, where the daemon has the very bytes: it has others where a policy redacts secrets. */
  done(saved: Checkpoint): void {
    if (this.pace.next(this.state.length) !== 'change') this.held.drop(this.key);
    else if (saved.sha256 === this.hash()) this.held.put(this.key, { id: saved.id, sha256: saved.sha256, state: this.state });
  }
}
