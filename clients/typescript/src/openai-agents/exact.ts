import { types } from 'node:util';

import { setMember } from '../tagged.js';

/** Thrown where a value is not plain. It says nothing of the value, which may be a secret. */
export class NotPlain extends Error {}

/**
 * A copy of a plain value: null, undefined, texts, numbers, booleans, bytes, and dense arrays and ordinary objects of such. Throws NotPlain for
 * anything else: accessors, symbols, members that are not enumerable, proxies, dates, maps, big integers, cycles. No accessor is called.
 */
export function exact(value: unknown, above: object[] = []): unknown {
  if (value === null || value === undefined || typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean') return value;
  if (typeof value !== 'object' || types.isProxy(value) || above.includes(value)) throw new NotPlain();
  if (value instanceof Uint8Array) return bytes(value);
  const inside = [...above, value];
  if (Array.isArray(value)) {
    const names = Reflect.ownKeys(value);
    if (names.length !== value.length + 1) throw new NotPlain(); // holes, or members besides; one is the length
    return Array.from({ length: value.length }, (_, i) => exact(member(value, String(i)), inside));
  }
  const proto: unknown = Object.getPrototypeOf(value);
  if (proto !== null && proto !== Object.prototype) throw new NotPlain();
  const copy = {};
  for (const name of Reflect.ownKeys(value)) {
    if (typeof name === 'symbol') throw new NotPlain();
    setMember(copy, name, exact(member(value, name), inside));
  }
  return copy;
}

/** A member that is a value, without calling anything. */
function member(of: object, name: string): unknown {
  const found = Object.getOwnPropertyDescriptor(of, name);
  if (!found?.enumerable || !('value' in found)) throw new NotPlain();
  return found.value;
}

function bytes(value: Uint8Array): Uint8Array {
  const length = Reflect.apply(lengthOf, value, []) as number;
  if (Object.keys(value).length !== length || Object.getOwnPropertySymbols(value).length > 0) throw new NotPlain();
  return new Uint8Array(value);
}

const lengthOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype) as object, 'length')!.get!;
