import { createHash } from 'node:crypto';

import { type Form, foreign } from '../document.js';
import { decode } from '../decode.js';
import { encode, NotSerializable } from '../encode.js';

/** The items of a session, and which changes were made of them: the id of each, and a print of what it was. */
export interface History<Item> {
  items: Item[];
  operations: Map<string, string>;
}

/** As a session is saved, for people to read. */
interface Written<Item> {
  session: string;
  items: Item[];
  operations: [id: string, print: string][];
}

export function form<Item>(session: string): Form<History<Item>> {
  return {
    read: (saved) => {
      if (!saved) return { items: [], operations: new Map() };
      const written = saved.state as Partial<Written<Item>> | null;
      if (written?.session !== session || !Array.isArray(written.items)) throw foreign(`the session ${JSON.stringify(session)}`, saved);
      return { items: written.items, operations: new Map(written.operations) };
    },
    write: ({ items, operations }) => ({ ...encode({ session, items, operations: [...operations] } satisfies Written<Item>), contentType: 'application/json' }),
  };
}

/** A copy of what was given, as it comes back when it has been saved. Throws where something of it cannot be saved. */
export function plain<T>(value: T): T {
  const { bytes, dropped } = encode(value, 'drop', 'the change');
  if (dropped.length > 0) throw new NotSerializable('the change', dropped);
  return decode(bytes) as T;
}

/** The same for values that are the same, whatever the order of their members. */
export function print(value: unknown): string {
  const sorted = JSON.stringify(JSON.parse(encode(value).bytes.toString('utf8')), (_, v: unknown) =>
    v !== null && typeof v === 'object' && !Array.isArray(v) ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1))) : v,
  );
  return createHash('sha256').update(sorted).digest('hex');
}
