import { type Form, foreign } from '../document.js';
import { type FoldSessionSummary, folded } from './summary.js';

/** A transcript: its entries as JSON with commas between them, and what is known of them. */
export interface Transcript {
  text: Buffer;
  count: number;
  uuids: Set<string>;
  /** what the SDK lists of it, undefined where that is not known */
  summary?: Record<string, unknown> | undefined;
}

interface Key {
  projectKey: string;
  sessionId: string;
  subpath?: string;
}

interface Line {
  uuid: string | undefined;
  text: string;
}

const none: Transcript = { text: Buffer.alloc(0), count: 0, uuids: new Set() };

/** Saved is the key and the entries, one JSON document for people to read. */
export function form(key: Key): Form<Transcript> {
  const head = Buffer.from(`${JSON.stringify(key).slice(0, -1)},"entries":[`);
  return {
    read: (saved) => {
      if (!saved) return none;
      const written = JSON.parse(saved.bytes.toString('utf8')) as Partial<Key & { entries: { uuid?: string }[] }> | null;
      const mine = written && (['projectKey', 'sessionId', 'subpath'] as const).every((name) => written[name] === key[name]);
      if (!mine || !Array.isArray(written.entries)) throw foreign(`the session ${key.sessionId}`, saved);
      const all = withEntries(none, written.entries.map((entry) => ({ uuid: entry.uuid, text: JSON.stringify(entry) }))) ?? none;
      return { ...all, summary: summaryOf(saved) };
    },
    metadata: ({ summary }) => (summary === undefined ? {} : { [member]: summary }),
    write: ({ text }) => ({ bytes: Buffer.concat([head, text, Buffer.from(']}')]), contentType: 'application/json', dropped: [], simplified: [] }),
  };
}

/** The member of a checkpoint's metadata that holds the summary. */
const member = 'session_summary';

/** The summary that was saved with a transcript. */
export function summaryOf({ metadata }: { metadata: Record<string, unknown> }): Record<string, unknown> | undefined {
  const found = metadata[member];
  return typeof found === 'object' && found !== null && !Array.isArray(found) ? (found as Record<string, unknown>) : undefined;
}

/** How entries become a part of what is listed of a session. */
export interface Summing {
  fold: FoldSessionSummary;
  key: Key;
}

/** A transcript with more entries; undefined where all of them are there already. */
export function withEntries(t: Transcript, lines: Line[], summing?: Summing): Transcript | undefined {
  const uuids = new Set(t.uuids);
  const added = lines.filter(({ uuid }) => {
    if (typeof uuid !== 'string') return true;
    const fresh = !uuids.has(uuid);
    uuids.add(uuid);
    return fresh;
  });
  if (added.length === 0) return undefined;
  const more = added.map(({ text }) => text).join(',');
  const bytes = Buffer.from(more, 'utf8');
  const text = t.count === 0 ? bytes : Buffer.concat([t.text, Buffer.from(','), bytes]);
  const summary = summing && (t.summary ? folded(summing.fold, summing.key, t.summary, more) : folded(summing.fold, summing.key, undefined, text.toString('utf8')));
  return { text, count: t.count + added.length, uuids, summary };
}
