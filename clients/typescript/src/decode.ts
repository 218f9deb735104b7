import { Dropped, kindsOfBytes, setMember, tag, Tagged } from './tagged.js';

/** Reads what `encode`, or anybody else, wrote as JSON. */
export function decode(json: Buffer | string): unknown {
  const text = typeof json === 'string' ? json : json.toString('utf8');
  const value: unknown = JSON.parse(text);
  return text.includes(`"${tag}"`) ? revive(value) : value;
}

/** Makes tagged objects what they stand for, in place. */
export function revive(value: unknown): unknown {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) value[i] = revive(value[i]);
    return value;
  }
  for (const [name, member] of Object.entries(value)) {
    const made = revive(member);
    if (made !== member) setMember(value, name, made);
  }
  return tag in value ? read(value as Node) : value;
}

interface Node {
  [tag]: unknown;
  value?: unknown;
  of?: unknown;
  type?: unknown;
  reason?: unknown;
  flags?: unknown;
  last_index?: unknown;
}

const unknown = Symbol('unknown');

function read(node: Node): unknown {
  const kind = node[tag];
  const reader = typeof kind === 'string' && Object.hasOwn(readers, kind) ? readers[kind] : undefined;
  let value: unknown = unknown;
  try {
    if (reader) value = reader(node);
  } catch {
    // it is not what it says
  }
  return value === unknown ? new Tagged(node) : value;
}

const floats = new Map<unknown, number>([
  ['nan', NaN],
  ['inf', Infinity],
  ['-inf', -Infinity],
  ['-0.0', -0],
]);

const readers: Record<string, (node: Node) => unknown> = {
  undefined: () => undefined,
  float: ({ value }) => floats.get(value) ?? unknown,
  int: ({ value }) => (typeof value === 'string' ? integer(value) : unknown),
  str: ({ value }) => (typeof value === 'string' ? loose(Buffer.from(value, 'base64')) : unknown),
  datetime: (node) => date(node),
  bytes: ({ value, of }) => (typeof value === 'string' ? bytes(value, of) : unknown),
  set: ({ value }) => (Array.isArray(value) ? new Set(value) : unknown),
  dict: ({ value, of }) => (Array.isArray(value) ? dict(value as [unknown, unknown][], of) : unknown),
  regexp: ({ value, flags, last_index }) => Object.assign(new RegExp(value as string, flags as string), { lastIndex: last_index ?? 0 }),
  url: ({ value }) => new URL(value as string),
  dropped: ({ type, reason }) => new Dropped(String(type), String(reason)),
};

function integer(text: string): bigint {
  return text.startsWith('-') ? -BigInt(text.slice(1)) : BigInt(text);
}

/** A time that is a Date to the last digit; others stay as they are. */
function date(node: Node): unknown {
  const exact = typeof node.value === 'string' && /^([+-]\d{6}|\d{4})-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}(000)?)?\+00:00$/.test(node.value);
  return exact && Object.keys(node).length === 2 ? new Date((node.value as string).replace('+00:00', 'Z')) : unknown;
}

function bytes(text: string, of: unknown): unknown {
  const buffer = Buffer.from(text, 'base64');
  if (of === undefined) return new Uint8Array(buffer);
  return Object.hasOwn(kindsOfBytes, String(of)) ? kindsOfBytes[String(of)]!(buffer) : unknown;
}

/** A Map, or an object that has a member called as our tag. */
function dict(pairs: [unknown, unknown][], of: unknown): unknown {
  const named = pairs.every(([key]) => typeof key === 'string') && pairs.some(([key]) => key === tag);
  if (of !== 'object' && !(of === undefined && named)) return new Map(pairs);
  const object = {};
  for (const [name, member] of pairs) setMember(object, name as string, member);
  return object;
}

/** UTF-8 in which lone surrogates may occur, as Python writes such texts. */
function loose(buffer: Buffer): string {
  let text = '';
  let from = 0;
  for (let at = buffer.indexOf(0xed); at >= 0; at = buffer.indexOf(0xed, at + 3)) {
    if (buffer[at + 1]! < 0xa0) continue;
    text += buffer.toString('utf8', from, at) + String.fromCharCode(0xd000 | ((buffer[at + 1]! & 0x3f) << 6) | (buffer[at + 2]! & 0x3f));
    from = at + 3;
  }
  return text + buffer.toString('utf8', from);
}
