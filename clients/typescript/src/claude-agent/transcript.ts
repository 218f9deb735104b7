import { type Form, foreign } from '../document.js';

/** A transcript: its entries as JSON with commas between them, and what is known of them. */
export interface Transcript {
  text: Buffer;
  count: number;
  uuids: Set<string>;
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
      return withEntries(none, written.entries.map((entry) => ({ uuid: entry.uuid, text: JSON.stringify(entry) }))) ?? none;
    },
    write: ({ text }) => ({ bytes: Buffer.concat([head, text, Buffer.from(']}')]), contentType: 'application/json', dropped: [], simplified: [] }),
  };
}

/** A transcript with more entries; undefined where all of them are there already. */
export function withEntries(t: Transcript, lines: Line[]): Transcript | undefined {
  const uuids = new Set(t.uuids);
  const added = lines.filter(({ uuid }) => {
    if (typeof uuid !== 'string') return true;
    const fresh = !uuids.has(uuid);
    uuids.add(uuid);
    return fresh;
  });
  if (added.length === 0) return undefined;
  const more = Buffer.from(added.map(({ text }) => text).join(','), 'utf8');
  return { text: t.count === 0 ? more : Buffer.concat([t.text, Buffer.from(','), more]), count: t.count + added.length, uuids };
}
