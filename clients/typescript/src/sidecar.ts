import { Agent } from './agent.js';
import type { Ask } from './ask.js';
import { Delivery } from './delivery.js';
import { type Duration, milliseconds } from './duration.js';
import { encode, type Unserializable } from './encode.js';
import { invalid } from './errors.js';
import { understood } from './problem.js';
import type { ReplayReport } from './replay.js';
import { checkAgent, get, objectOf, post, queryOf } from './requests.js';
import { joinRun, type Run, type SharedRun } from './run.js';
import { Saver } from './saver.js';
import { resolve } from 'node:path';
import type { Settings } from './settings.js';
import { spoolFolder } from './spool.js';
import { version } from './version.js';
import type { FindingInfo, ImportReport, Policy, PolicyLayers, Prompt, PromptPage, RunFilter, RunPage, Version } from './wire.js';

export interface SidecarOptions {
  /** the daemon's socket or pipe, the only one tried; otherwise `CKPTSIDECAR_SOCKET`, or else the user's own, then the system's */
  socket?: string;
  /** whose agents the calls are about, for administrators */
  owner?: string;
  /** how long a call waits for a daemon that is away or busy; 5 s */
  deadline?: Duration;
  /** how long the begin of a run waits for one that is expected to come back; 10 s */
  startDeadline?: Duration;
  /** how long the answer to one request may take where nothing else can be done; 60 s */
  timeout?: Duration;
  /** what changes a run is spooled when the deadline is over; with `false` it throws. `true` */
  failOpen?: boolean;
  spool?: {
    /** otherwise `CKPTSIDECAR_SPOOL`, or beside the user's own database */
    folder?: string;
    /** how much may wait there; 1 GiB */
    maxBytes?: number;
    /** what becomes of a write that the spool does not take: an error, or it is dropped and a warning says so; `raise` */
    whenItFails?: 'raise' | 'drop';
  };
  /** start the user's own daemon where none answers; `false` */
  autostart?: boolean;
  /** send every large state whole, or with `false` only what changed of it; otherwise whichever has been quicker so far */
  whole?: boolean;
  /** what to do with what JSON cannot say: `drop` it and name the places, or `refuse` the whole; `drop` */
  unserializable?: Unserializable;
  /** told what a person should know; otherwise `process.emitWarning` */
  onWarning?: (message: string) => void;
}

/** One client of the daemon: one connection, one call after the other. It is safe to share among promises. */
export class Sidecar {
  /** @internal */
  readonly delivery: Delivery;
  private readonly saver: Saver;

  /** Nothing is connected before the first call. */
  constructor(options: SidecarOptions = {}) {
    this.delivery = new Delivery(settingsOf(options));
    this.saver = new Saver(this.delivery);
  }

  /** An agent by its name; without one it is `CKPTSIDECAR_AGENT`, as `ckptsidecar exec` sets it. */
  agent(name: string = process.env['CKPTSIDECAR_AGENT'] ?? ''): Agent {
    return new Agent(this.delivery, this.saver, checkAgent(name));
  }

  /** A run that another client owns, for a worker thread or a child process of the owner. */
  join<S = any>(shared: SharedRun): Run<S> {
    return joinRun<S>(this.delivery, this.saver, shared);
  }

  /** Sends what waits in the spool, of any client. Not needed usually: each client does so by itself. */
  replay(): Promise<ReplayReport> {
    return this.delivery.turn(() => this.delivery.backlog.replay(this.delivery.settings.deadline));
  }

  async version(): Promise<Version> {
    return understood(await this.delivery.call(get('/v1/version')), false);
  }

  /** The runs of all agents, the last changed first. */
  async runs(filter: RunFilter & { agent?: string } = {}): Promise<RunPage> {
    const { labels, ...rest } = filter;
    return understood(await this.delivery.call(get('/v1/runs', queryOf(rest, labels))), false);
  }

  /** What counts for this user's agents that have set nothing themselves, and where each value comes from. */
  async policyForAll(): Promise<PolicyLayers> {
    return understood(await this.delivery.call(get('/v1/policy')), false);
  }

  /** Changes some settings for all of this user's agents; `undefined` sets one no more. What an agent sets itself goes over them. */
  async setPolicyForAll(change: Partial<Policy>): Promise<PolicyLayers & { agents: number; removed: number }> {
    const { owner } = await this.policyForAll();
    const headers = { 'Content-Type': 'application/json' };
    const ask: Ask = { method: 'PUT', path: '/v1/policy', headers, body: objectOf({ ...owner, ...change }), write: true, repeatable: true };
    return understood(await this.delivery.call(ask), true);
  }

  /** Questions to people, newest first. */
  async prompts(filter: { open?: boolean; before?: string; limit?: number } = {}): Promise<PromptPage> {
    return understood(await this.delivery.call(get('/v1/prompts', queryOf({ ...filter, open: filter.open || undefined }))), false);
  }

  async prompt(id: string): Promise<Prompt> {
    return understood(await this.delivery.call(get(`/v1/prompts/${encodeURIComponent(id)}`)), false);
  }

  /**
   * Answers how to go on with a run (`resume`, `reinitialize`, `abandon`), or what a run asked, with data. The same answer again changes
   * nothing; another one is a conflict.
   */
  async answer(prompt: string, choice: string | undefined, how: string | { reason?: string; data?: unknown } = {}): Promise<Prompt> {
    const { reason, data } = typeof how === 'string' ? { reason: how, data: undefined } : how;
    const encoded = data === undefined ? undefined : encode(data, this.delivery.settings.unserializable, 'the data of the answer').bytes;
    const ask = post(`/v1/prompts/${encodeURIComponent(prompt)}/answer`, objectOf({ choice, reason }, { data: encoded }), { agent: '', run: '' });
    return understood(await this.delivery.call(ask), true);
  }

  /** Says that a finding was none, or is dealt with; answers it, with the checkpoints that are clean again. */
  async dismiss(finding: string, reason?: string): Promise<FindingInfo & { cleaned: string[] }> {
    const ask = post(`/v1/findings/${encodeURIComponent(finding)}/dismiss`, objectOf({ reason }), { agent: '', run: '' });
    return understood(await this.delivery.call(ask), true);
  }

  /** Some agents as a SQLite file, or all of this user's: see docs/EXPORT.md. It is held in memory as a whole. */
  async export(agents: string[] = []): Promise<Buffer> {
    const ask = get('/v1/export', queryOf({ agents: agents.map(checkAgent).join(',') }));
    return (await this.delivery.call(ask)).body;
  }

  /** Brings in what `export` gave, under its own names or another. Doing it again changes nothing. */
  async import(exported: Buffer | string, { agent }: { agent?: string } = {}): Promise<ImportReport> {
    const query = queryOf({ agent: agent === undefined ? undefined : checkAgent(agent) });
    const headers = { 'Content-Type': 'application/octet-stream' };
    const ask = { method: 'POST' as const, path: '/v1/import', query, headers, body: Buffer.from(exported), write: true, repeatable: true };
    return understood(await this.delivery.call(ask), true);
  }

  /** Closes the connection. What waits in the spool stays there for a later client. */
  close(): void {
    this.delivery.close();
  }
}

function settingsOf(o: SidecarOptions): Settings {
  const deadline = milliseconds(o.deadline ?? 5000, 'deadline');
  const maxBytes = o.spool?.maxBytes ?? 1 << 30;
  if (!(maxBytes >= 0)) throw invalid(`spool.maxBytes is ${maxBytes}: give the number of bytes that may wait`);
  const failOpen = o.failOpen ?? true;
  const warn = o.onWarning ?? ((message: string) => process.emitWarning(message, 'CkptsidecarWarning'));
  return {
    socket: o.socket,
    owner: o.owner,
    deadline,
    startDeadline: Math.max(milliseconds(o.startDeadline ?? 10_000, 'startDeadline'), o.startDeadline === undefined ? deadline : 0),
    timeout: milliseconds(o.timeout ?? 60_000, 'timeout'),
    failOpen,
    spool: { folder: o.spool?.folder ? resolve(o.spool.folder) : spoolFolder(), maxBytes, whenItFails: o.spool?.whenItFails ?? 'raise' },
    autostart: o.autostart ?? false,
    whole: o.whole,
    unserializable: o.unserializable ?? 'drop',
    client: `typescript/${version}`,
    warn: (message) => {
      if (message !== '') warn(message);
    },
  };
}
