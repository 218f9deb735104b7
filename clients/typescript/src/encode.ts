import { types } from 'node:util';

import { invalid, SidecarError } from './errors.js';
import { Dropped, kindsOfBytes, setMember, tag, Tagged } from './tagged.js';

/** A place of a value that does not come back as it was. */
export interface Trace {
  /** a JSON pointer (RFC 6901) into the value */
  path: string;
  /** what it was, such as `function`, `Promise`, or the name of a class */
  type: string;
  /** why it is not saved, or how */
  reason: string;
}

/** A value as JSON, and what of it was dropped or simplified. */
export interface Encoded {
  bytes: Buffer;
  /** what could not be saved: `Dropped` stands in its place */
  dropped: Trace[];
  /** what is saved as something plainer */
  simplified: Trace[];
}

/** What to do with what cannot be saved as it is: drop or simplify it, or refuse the whole. */
export type Unserializable = 'drop' | 'refuse';

const mostTraces = 1000; // of each list; the last one says how many more there are
const mostDepth = 900; // levels of JSON; the daemon takes 1000

/** A value that would not come back unchanged was refused; `traces` names the places. */
export class NotSerializable extends SidecarError {
  constructor(
    what: string,
    readonly traces: Trace[],
  ) {
    const shown = traces.slice(0, 5).map((t) => `${t.path === '' ? 'the value itself' : t.path} (${t.type}) ${t.reason}`);
    const rest = traces.length > shown.length ? `; and ${traces.length - shown.length} more` : '';
    super('not_serializable', `${what} would not come back unchanged: ${shown.join('; ')}${rest}`);
  }
}

/**
 * Writes a value as JSON so that nothing changes without a trace. Dates, maps,
 * sets, bytes, big integers, NaN and the like are written so that `decode`
 * gives them back; docs/TYPESCRIPT.md has the table.
 */
export function encode(value: unknown, unserializable: Unserializable = 'drop', what = 'the state'): Encoded {
  if (value === undefined) throw invalid(`${what} is undefined: there is nothing to save`);
  const walk = new Walk();
  const clean = walk.value(value, 0);
  const { dropped, simplified } = walk;
  const refused = unserializable === 'refuse' ? [...dropped.list(), ...simplified.list()] : [];
  if (clean instanceof Marker && dropped.list()[0]?.path === '') refused.push(...dropped.list());
  if (refused.length > 0) throw new NotSerializable(what, refused);
  return { bytes: write(clean, what), dropped: dropped.list(), simplified: simplified.list() };
}

function write(clean: unknown, what: string): Buffer {
  let text: string;
  try {
    text = JSON.stringify(clean);
  } catch (cause) {
    throw new SidecarError('invalid', `${what} cannot be written as JSON: ${(cause as Error).message}`, { cause });
  }
  return Buffer.from(text, 'utf8');
}

/** An object with the tag. */
class Marker {
  constructor(kind: string, members: object = {}) {
    setMember(this, tag, kind);
    Object.assign(this, members);
  }
}

/** A list that does not grow without end. */
class Traces {
  private readonly kept: Trace[] = [];
  private more = 0;

  add(trace: Trace): void {
    if (this.kept.length < mostTraces) this.kept.push(trace);
    else this.more++;
  }

  list(): Trace[] {
    if (this.more === 0) return this.kept;
    return [...this.kept, { path: '', type: '', reason: `${this.more} more are not listed` }];
  }
}

/** One way through a value. */
class Walk {
  readonly dropped = new Traces();
  readonly simplified = new Traces();
  private readonly keys: (string | number)[] = [];
  private readonly open = new Map<object, number>(); // what we are inside of, and how many keys lead there

  /** The value itself where it is plain throughout, else what stands for it. */
  value(value: unknown, depth: number): unknown {
    switch (typeof value) {
      case 'string':
      case 'boolean':
        return value;
      case 'number':
        return Number.isFinite(value) && !Object.is(value, -0) ? value : new Marker('float', { value: numberText(value) });
      case 'object':
        return value === null ? null : this.object(value, depth);
      case 'bigint':
        return new Marker('int', { value: integerText(value) });
      case 'undefined':
        return new Marker('undefined');
    }
    return this.drop(typeof value, 'cannot be saved');
  }

  private object(value: object, depth: number): unknown {
    const above = this.open.get(value);
    if (above !== undefined) return this.drop(nameOf(value), `contains itself: it is also at ${JSON.stringify(this.path(above))}`);
    if (depth >= mostDepth) return this.drop(nameOf(value), `is nested more than ${mostDepth} deep`);
    this.open.set(value, this.keys.length);
    try {
      if (Array.isArray(value)) return this.array(value, depth);
      const proto: unknown = Object.getPrototypeOf(value);
      const ordinary = proto === null || Object.getPrototypeOf(proto) === null; // of any realm
      return ordinary && !hasToJSON(value) ? this.members(value, depth) : this.special(value, depth);
    } catch (thrown) {
      if (thrown instanceof SidecarError || thrown instanceof RangeError) throw thrown;
      return this.drop(nameOf(value), 'cannot be read'); // a proxy may throw at anything
    } finally {
      this.open.delete(value);
    }
  }

  private array(value: readonly unknown[], depth: number): unknown {
    let copy: unknown[] | undefined;
    for (let i = 0; i < value.length; i++) {
      const before = value[i];
      if (typeof before === 'string') {
        copy?.push(before);
        continue;
      }
      this.keys.push(i);
      if (before === undefined && !(i in value)) this.simplify('hole', 'is saved as undefined');
      const after = this.value(before, depth + 1);
      if (copy) copy.push(after);
      else if (after !== before) copy = [...value.slice(0, i), after];
      this.keys.pop();
    }
    return copy ?? value;
  }

  private members(value: object, depth: number): unknown {
    const names = Object.keys(value);
    let copy: object | undefined;
    let tagged = false;
    for (let i = 0; i < names.length; i++) {
      const name = names[i]!;
      tagged ||= name === tag;
      this.keys.push(name);
      const [before, after] = this.member(value, name, depth);
      if (!copy && (after !== before || before === undefined)) copy = begun(value, names, i);
      if (copy && after !== undefined) setMember(copy, name, after);
      this.keys.pop();
    }
    for (const symbol of Object.getOwnPropertySymbols(value)) this.symbol(value, symbol);
    // A member that is called as our tag must not be taken for it.
    return tagged ? new Marker('dict', { value: Object.entries(copy ?? value), of: 'object' }) : (copy ?? value);
  }

  /** A member as it is and as it is saved, undefined for left out. */
  private member(value: object, name: string, depth: number): [unknown, unknown] {
    let before: unknown;
    try {
      before = (value as Record<string, unknown>)[name];
    } catch {
      return [undefined, this.drop('getter', 'throws')];
    }
    if (before !== undefined) return [before, this.value(before, depth + 1)];
    this.simplify('undefined', 'is left out');
    return [before, undefined];
  }

  private symbol(value: object, symbol: symbol): void {
    if (!Object.prototype.propertyIsEnumerable.call(value, symbol)) return;
    this.keys.push(String(symbol));
    this.drop('symbol', 'is a key that cannot be saved');
    this.keys.pop();
  }

  /** Objects that are more than their members. */
  private special(value: object, depth: number): unknown {
    if (value instanceof Dropped) return this.drop(value.type, value.reason); // it was dropped before: so it stays
    if (value instanceof Tagged) return this.verbatim(value, depth);
    if (types.isDate(value)) return this.date(value);
    if (types.isMap(value)) return this.map(value, depth);
    if (types.isSet(value)) return this.only(value, 'Set', new Marker('set', { value: this.array([...value], depth + 1) }));
    if (ArrayBuffer.isView(value)) return this.bytes(value, value.buffer, value.byteOffset, value.byteLength);
    if (types.isAnyArrayBuffer(value)) return this.bytes(value, value, 0, value.byteLength);
    if (types.isRegExp(value)) return this.only(value, 'RegExp', regexp(value));
    if (value instanceof URL) return this.only(value, 'URL', new Marker('url', { value: value.href }));
    if (types.isPromise(value) || types.isWeakMap(value) || types.isWeakSet(value) || types.isGeneratorObject(value) || value instanceof WeakRef) {
      return this.drop(nameOf(value), 'cannot be saved');
    }
    if (types.isBoxedPrimitive(value)) return this.plainer(value, (value as { valueOf(): unknown }).valueOf(), depth);
    if (hasToJSON(value)) return this.told(value, depth);
    if (types.isNativeError(value)) return this.plainer(value, errorMembers(value), depth);
    this.simplify(nameOf(value), 'is saved as an object');
    return this.members(value, depth);
  }

  private verbatim(value: Tagged, depth: number): unknown {
    const copy = {};
    for (const [name, member] of Object.entries(value)) setMember(copy, name, this.value(member, depth + 1));
    return copy;
  }

  private date(value: Date): unknown {
    if (Number.isNaN(value.getTime())) return this.drop('Date', 'is no valid time');
    return this.only(value, 'Date', new Marker('datetime', { value: value.toISOString().replace('Z', '+00:00') }));
  }

  private map(value: Map<unknown, unknown>, depth: number): unknown {
    const pairs = this.array([...value], depth + 1);
    return this.only(value, 'Map', new Marker('dict', { value: pairs, ...(value.has(tag) ? { of: 'Map' } : {}) }));
  }

  private bytes(value: object, buffer: ArrayBufferLike, offset: number, length: number): unknown {
    const name = nameOf(value);
    const known = name in kindsOfBytes;
    const text = Buffer.from(buffer as ArrayBuffer, offset, length).toString('base64');
    const marker = new Marker('bytes', { value: text, ...(known ? { of: name } : {}) });
    if (!known && name !== 'Uint8Array') this.simplify(name, 'is saved as a Uint8Array');
    return marker;
  }

  /** Notes where a value is more than its type makes it. */
  private only(value: object, type: string, marker: Marker): unknown {
    if (nameOf(value) !== type) this.simplify(nameOf(value), `is saved as a ${type}`);
    else if (Object.keys(value).length > 0) this.simplify(type, 'is saved without the members that were given to it');
    return marker;
  }

  /** What an object's own toJSON says, as JSON.stringify has it. */
  private told(value: { toJSON(key: string): unknown }, depth: number): unknown {
    let said: unknown;
    try {
      said = value.toJSON(String(this.keys[this.keys.length - 1] ?? ''));
    } catch {
      return this.drop(nameOf(value), 'has a toJSON that throws');
    }
    if (said === undefined) return this.drop(nameOf(value), 'has a toJSON that says undefined');
    if (said !== value) return this.plainer(value, said, depth);
    this.simplify(nameOf(value), 'is saved as an object');
    return this.members({ ...value, toJSON: undefined }, depth);
  }

  /** Something plainer in the place of a value, which is looked through in turn. */
  private plainer(value: object, plain: unknown, depth: number): unknown {
    this.simplify(nameOf(value), `is saved as ${Array.isArray(plain) ? 'an array' : typeof plain === 'object' ? 'an object' : `a ${typeof plain}`}`);
    return this.value(plain, depth + 1);
  }

  private drop(type: string, reason: string): Marker {
    this.dropped.add({ path: this.path(), type, reason });
    return new Marker('dropped', { type, reason });
  }

  private simplify(type: string, reason: string): void {
    this.simplified.add({ path: this.path(), type, reason });
  }

  private path(keys = this.keys.length): string {
    return this.keys
      .slice(0, keys)
      .map((key) => '/' + String(key).replace(/~/g, '~0').replace(/\//g, '~1'))
      .join('');
  }
}

/** A copy of the members before the first that differs. */
function begun(value: object, names: string[], until: number): object {
  const copy = {};
  for (const name of names.slice(0, until)) setMember(copy, name, (value as Record<string, unknown>)[name]);
  return copy;
}

function hasToJSON(value: object): value is { toJSON(key: string): unknown } {
  return typeof (value as { toJSON?: unknown }).toJSON === 'function';
}

function regexp(value: RegExp): Marker {
  return new Marker('regexp', { value: value.source, flags: value.flags, ...(value.lastIndex ? { last_index: value.lastIndex } : {}) });
}

function errorMembers(error: Error): object {
  const { name, message, stack, cause } = error;
  return { ...error, name, message, ...(stack === undefined ? {} : { stack }), ...(cause === undefined ? {} : { cause }) };
}

/** In the words of Python, which reads them. */
function numberText(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  return Object.is(value, -0) ? '-0.0' : value > 0 ? 'inf' : '-inf';
}

/** Long ones in hexadecimal digits, because Python takes no long decimals. */
function integerText(value: bigint): string {
  const text = String(value);
  if (text.length <= 2400) return text;
  return value < 0n ? `-0x${(-value).toString(16)}` : `0x${value.toString(16)}`;
}

function nameOf(value: object): string {
  try {
    const name: unknown = (value as { constructor?: { name?: unknown } }).constructor?.name;
    if (typeof name === 'string' && name !== '') return name;
  } catch {
    // a proxy
  }
  return 'Object';
}
