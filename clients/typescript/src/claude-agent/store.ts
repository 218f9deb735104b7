import type { Agent } from '../agent.js';
import { type About, Document, runNameOf } from '../document.js';
import { invalid, isSidecarError } from '../errors.js';
import { Sidecar } from '../sidecar.js';
import type { RunInfo } from '../wire.js';
import type { SessionKey, SessionStoreEntry } from './entry.js';
import { type FoldSessionSummary, foldOfSDK, type SessionSummaryEntry } from './summary.js';
import { form, summaryOf, type Transcript, withEntries } from './transcript.js';

export interface SidecarSessionStoreOptions {
  /** the agent under whose name sessions are saved; `claude-agent` */
  agent?: string;
  /** the client to save with; otherwise one with the defaults */
  sidecar?: Sidecar;
  /** the SDK's function of that name; otherwise that of the SDK that is installed beside this package */
  foldSessionSummary?: FoldSessionSummary;
}

const mostOpen = 64; // transcripts that are kept in memory between two appends

/**
 * A `SessionStore` of the Claude Agent SDK: each transcript is a run of its
 * own, and each append a checkpoint. What `append` has answered is on disk.
 */
export class SidecarSessionStore {
  private readonly agent: Agent;
  private readonly fold: FoldSessionSummary | undefined;
  private readonly open = new Map<string, Document<Transcript>>(); // the last used one last

  constructor(options: SidecarSessionStoreOptions = {}) {
    this.agent = (options.sidecar ?? new Sidecar()).agent(options.agent ?? 'claude-agent');
    this.fold = options.foldSessionSummary;
  }

  /** Appends entries; one whose uuid is there already is left out. */
  async append(key: SessionKey, entries: SessionStoreEntry[]): Promise<void> {
    if (entries.length === 0) return;
    const lines = entries.map((entry) => ({ uuid: entry.uuid, text: JSON.stringify(entry) })); // now: they are the caller's to change
    const fold = this.fold ?? (await foldOfSDK());
    const summing = fold && key.subpath === undefined ? { fold, key: { projectKey: key.projectKey, sessionId: key.sessionId } } : undefined;
    await this.transcript(key).change((t) => withEntries(t, lines, summing));
  }

  /** All entries in order, null where nothing was appended. */
  async load(key: SessionKey): Promise<SessionStoreEntry[] | null> {
    const { count, text } = await this.transcript(key).read();
    return count === 0 ? null : (JSON.parse(`[${text.toString('utf8')}]`) as SessionStoreEntry[]);
  }

  /** The sessions of a project, and when each was written to last. */
  async listSessions(projectKey: string): Promise<{ sessionId: string; mtime: number }[]> {
    const runs = await this.runs((run) => run.workflow === projectKey && run.labels['subpath'] === undefined);
    return runs.map((run) => ({ sessionId: run.external_session!, mtime: Date.parse(run.updated_at) }));
  }

  /**
   * What the SDK lists of the sessions of a project, without a transcript being read. A session whose last append came without the SDK's
   * `foldSessionSummary` is left out, and the SDK reads that one's transcript.
   */
  async listSessionSummaries(projectKey: string): Promise<SessionSummaryEntry[]> {
    const runs = await this.runs((run) => run.workflow === projectKey && run.labels['subpath'] === undefined);
    const open = new Map(runs.map((run) => [run.run, run]));
    const found: SessionSummaryEntry[] = [];
    if (open.size === 0) return found;
    for await (const checkpoint of this.agent.all({ kind: 'routine' })) {
      const run = open.get(checkpoint.run);
      if (!run) continue; // an older state of one that was found, or another project's
      open.delete(run.run);
      const data = summaryOf(checkpoint);
      if (data) found.push({ sessionId: run.external_session!, mtime: Date.parse(run.updated_at), data });
      if (open.size === 0) break;
    }
    return found;
  }

  /** The transcripts of a session's subagents. */
  async listSubkeys({ projectKey, sessionId }: { projectKey: string; sessionId: string }): Promise<string[]> {
    const runs = await this.runs((run) => run.workflow === projectKey && run.external_session === sessionId);
    return runs.flatMap((run) => run.labels['subpath'] ?? []);
  }

  /** Removes a transcript, and with that of a session those of its subagents, also from the daemon's disk. */
  async delete(key: SessionKey): Promise<void> {
    const subpaths = key.subpath === undefined ? await this.listSubkeys(key) : [];
    for (const subpath of subpaths) await this.transcript({ ...key, subpath }).remove();
    await this.transcript(key).remove();
  }

  private transcript(key: SessionKey): Document<Transcript> {
    const { projectKey, sessionId, subpath } = checked(key);
    const run = nameOf(key);
    const known = this.open.get(run);
    this.open.delete(run);
    const whole = { projectKey, sessionId, ...(subpath === undefined ? {} : { subpath }) };
    const document = known ?? this.agent.document(run, about(whole), form(whole));
    this.open.set(run, document);
    if (this.open.size > mostOpen) this.open.delete(this.open.keys().next().value!);
    return document;
  }

  /** The runs that hold a transcript, of those that are wanted. */
  private async runs(wanted: (run: RunInfo) => boolean): Promise<RunInfo[]> {
    const found: RunInfo[] = [];
    for (let before: string | undefined; ; ) {
      const page = await this.agent.runs({ limit: 1000, ...(before ? { before } : {}) }).catch((error: unknown) => {
        if (isSidecarError(error, 'not_found')) return { runs: [], next: null };
        throw error;
      });
      found.push(...page.runs.filter((run) => run.ended_at === null && run.status !== 'starting' && wanted(run)));
      if (!page.next) return found;
      before = page.next;
    }
  }
}

function checked(key: SessionKey): SessionKey {
  for (const name of ['projectKey', 'sessionId', 'subpath'] as const) {
    const value = key[name];
    if (name === 'subpath' && value === undefined) continue;
    if (typeof value !== 'string' || value === '') throw invalid(`the ${name} of the session is ${JSON.stringify(value) ?? 'missing'}: it must be text that is not empty`);
  }
  return key;
}

function nameOf({ projectKey, sessionId, subpath }: SessionKey): string {
  return runNameOf(sessionId, projectKey, sessionId, ...(subpath === undefined ? [] : [subpath]));
}

function about({ projectKey, sessionId, subpath }: SessionKey): About {
  const subagent = subpath === undefined ? {} : { parentRun: nameOf({ projectKey, sessionId }), labels: { subpath } };
  return { workflow: projectKey, externalSession: sessionId, ...subagent };
}
