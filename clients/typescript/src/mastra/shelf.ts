import type { Agent } from '../agent.js';
import { type About, type Document, type Form, foreign, runNameOf } from '../document.js';
import { decode } from '../decode.js';
import { encode } from '../encode.js';
import { isSidecarError } from '../errors.js';
import type { RunInfo } from '../wire.js';

const mostOpen = 64; // documents that are kept in memory between two changes
const kindLabel = 'mastra';

/** Documents of one kind, by their ids. Each is a run of its own, and each change of it a checkpoint. */
export class Shelf<C extends object> {
  private readonly open = new Map<string, { document: Document<C | undefined>; about: About }>(); // the last used one last

  constructor(
    private readonly agent: Agent,
    /** such as `thread`; it is a label of the runs */
    private readonly kind: string,
  ) {}

  /** What a document holds; undefined where there is none. */
  read(...id: string[]): Promise<C | undefined> {
    return this.document(id).read();
  }

  /** Changes a document. The work may be asked more than once; it is given a copy, and may change that. */
  async change(id: string[], about: About, work: (content: C | undefined) => Promise<C | undefined>): Promise<void> {
    await this.document(id, about).change(async (content) => {
      const next = await work(content && structuredClone(content));
      return next && saved(next);
    });
  }

  /** Removes a document, also from the daemon's disk. */
  remove(...id: string[]): Promise<void> {
    return this.document(id).remove();
  }

  /** Reads all documents, or those of one workflow. */
  async all(workflow?: string): Promise<C[]> {
    const found: C[] = [];
    for (const run of await this.runs()) {
      if (workflow !== undefined && run.workflow !== workflow) continue;
      const content = await this.documentOf(run.run).read();
      if (content) found.push(content);
    }
    return found;
  }

  /** Removes all documents of the kind. */
  async clear(): Promise<void> {
    for (const run of await this.runs()) await this.documentOf(run.run).remove();
  }

  private document(id: string[], about: About = {}): Document<C | undefined> {
    return this.documentOf(runNameOf(id.join('.'), this.kind, ...id), about);
  }

  private documentOf(run: string, about: About = {}): Document<C | undefined> {
    const known = this.open.get(run) ?? this.opened(run);
    Object.assign(known.about, about);
    this.open.delete(run);
    this.open.set(run, known);
    if (this.open.size > mostOpen) this.open.delete(this.open.keys().next().value!);
    return known.document;
  }

  private opened(run: string): { document: Document<C | undefined>; about: About } {
    const about: About = { labels: { [kindLabel]: this.kind } };
    return { document: this.agent.document(run, about, formOf<C>(this.kind)), about };
  }

  private async runs(): Promise<RunInfo[]> {
    const found: RunInfo[] = [];
    for (let before: string | undefined; ; ) {
      const page = await this.agent.runs({ limit: 1000, ...(before ? { before } : {}) }).catch((error: unknown) => {
        if (isSidecarError(error, 'not_found')) return { runs: [], next: null };
        throw error;
      });
      found.push(...page.runs.filter((run) => run.ended_at === null && run.status !== 'starting' && run.labels[kindLabel] === this.kind));
      if (!page.next) return found;
      before = page.next;
    }
  }
}

/** As a document is saved: `{ "thread": … }`. */
function formOf<C extends object>(kind: string): Form<C | undefined> {
  return {
    read: (stored) => {
      if (!stored) return undefined;
      const content = (stored.state as Record<string, C> | null)?.[kind];
      if (typeof content !== 'object' || content === null) throw foreign(`a ${kind} of Mastra`, stored);
      return content;
    },
    write: (content) => ({ ...encode({ [kind]: content }, 'drop', `the ${kind}`), contentType: 'application/json' }),
  };
}

/** A value as it comes back when it has been saved, so that nobody else can change it. */
function saved<C>(value: C): C {
  return decode(encode(value, 'drop').bytes) as C;
}
