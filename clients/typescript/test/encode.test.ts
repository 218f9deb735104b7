import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { runInNewContext } from 'node:vm';

import { decode, Dropped, encode, NotSerializable, Tagged } from 'ckptsidecar';

const text = (value: unknown): string => encode(value).bytes.toString();
const back = (value: unknown): unknown => decode(encode(value).bytes);
const traced = (value: unknown): string[] => {
  const { dropped, simplified } = encode(value);
  return [...dropped.map((t) => `dropped ${t.path} ${t.type}`), ...simplified.map((t) => `simplified ${t.path} ${t.type}`)];
};

test('plain values are the JSON that everybody writes', () => {
  const value = { a: [1, 'x', null, true, { b: -1.5e300 }], '': {}, 'ünï': '\u2028"\\' };
  assert.equal(text(value), JSON.stringify(value));
  assert.deepEqual(traced(value), []);
});

test('what JSON has no words for comes back as it was', () => {
  const values: unknown[] = [
    NaN, Infinity, -Infinity, -0, 10n ** 30n, -5n, -(10n ** 3000n),
    new Date('2026-03-01T12:00:00.123Z'), new Date(8.64e15), new Date(-62198755200000),
    new Map<unknown, unknown>([['a', 1], [{ k: 1 }, [NaN]], [new Date(0), new Set([1n])]]),
    new Map([['$ckpt', 'dict']]), new Set([1, 'two', new Set()]), /a\/b/giu, new URL('http://x/y?z#w'),
    new Uint8Array([0, 255, 7]), Buffer.from('bytes'), new Float64Array([1.5, NaN, -0]), new BigInt64Array([-1n]),
    new Uint8Array([9, 8, 7, 6]).subarray(1, 3), new Uint16Array(new Uint16Array([1, 2, 3]).buffer, 2, 1),
    new Uint8Array([1, 2]).buffer, [1, undefined, 2],
    { $ckpt: 'datetime', value: 'mine' }, { a: { $ckpt: 'dropped', type: 'x', reason: 'y' } }, { $ckpt: NaN },
    'lone \ud800 surrogate', { '\udc00': '\ud83d' }, '\ud83d\ude00', Object.create(null, { x: { value: 1n, enumerable: true } }),
  ];
  for (const value of values) {
    assert.deepEqual(traced(value), [], inspect(value));
    const again = back(value);
    if (value !== null && typeof value === 'object' && Object.getPrototypeOf(value) === null) assert.deepEqual({ ...(again as object) }, { ...value });
    else assert.deepStrictEqual(again, value);
    assert.deepStrictEqual(back({ deep: [value] }), { deep: [again] });
  }
});

test('members that are called __proto__ are members', () => {
  const value = JSON.parse('{"__proto__":{"x":1},"d":0}') as Record<string, unknown>;
  value['d'] = new Date(0);
  const again = back(value) as object;
  assert.deepEqual(Object.entries(again), Object.entries(value));
  assert.equal(Object.getPrototypeOf(again), Object.prototype);
  const inside = JSON.parse('{"__proto__":0}') as object;
  Object.defineProperty(inside, '__proto__', { value: new Date(5), enumerable: true });
  assert.deepEqual(Object.entries(back(inside) as object), [['__proto__', new Date(5)]]);
});

test('the places of what cannot be saved are named, and Dropped stands there', () => {
  const circle: Record<string, unknown> = { name: 'c' };
  circle['self'] = circle;
  const list: unknown[] = [1];
  list.push({ 'a/b~': list });
  const value = { circle, list, f: () => 1, s: Symbol('s'), p: Promise.resolve(), [Symbol('key')]: 1, bad: new Date(NaN), get thrower(): unknown { throw new Error('no'); } };
  const { dropped, simplified } = encode(value);
  assert.deepEqual(simplified, []);
  assert.deepEqual(dropped.map((t) => [t.path, t.type]), [
    ['/circle/self', 'Object'], ['/list/1/a~1b~0', 'Array'], ['/f', 'function'], ['/s', 'symbol'], ['/p', 'Promise'], ['/bad', 'Date'], ['/thrower', 'getter'], ['/Symbol(key)', 'symbol'],
  ]);
  assert.match(dropped[0]!.reason, /contains itself: it is also at "\/circle"/);
  const again = back(value) as typeof value & { f: unknown };
  assert.deepStrictEqual(again.f, new Dropped('function', 'cannot be saved'));
  assert.deepStrictEqual(again.list, [1, { 'a/b~': new Dropped('Array', dropped[1]!.reason) }]);
  assert.deepEqual(encode(again).dropped.length, 7, 'saved again, it is still named');
  assert.deepStrictEqual(back(again), again);
});

test('the same object twice is no circle', () => {
  const shared = { x: 1n };
  assert.deepEqual(traced([shared, shared, { shared }]), []);
  assert.deepStrictEqual(back([shared, { shared }]), [{ x: 1n }, { shared: { x: 1n } }]);
});

test('what is saved as something plainer is named', () => {
  class Point { #hidden = 1; constructor(readonly x: number, readonly y?: undefined) { void this.#hidden; } }
  class Money { constructor(readonly cents: number) {} toJSON(): unknown { return { $: this.cents / 100, at: new Date(0) }; } }
  class Tree extends Map<string, number> {}
  const error = Object.assign(new TypeError('wrong', { cause: 'why' }), { code: 'E1' });
  const value = { point: new Point(3), money: new Money(150), tree: new Tree([['a', 1]]), n: Object(5) as unknown, error, hole: [, 1], own: Object.assign(new Date(0), { note: 1 }), gone: undefined };
  assert.deepEqual(traced(value), [
    'simplified /point Point', 'simplified /point/y undefined', 'simplified /money Money', 'simplified /tree Tree', 'simplified /n Number',
    'simplified /error TypeError', 'simplified /hole/0 hole', 'simplified /own Date', 'simplified /gone undefined',
  ]);
  const again = back(value) as Record<string, unknown>;
  assert.deepStrictEqual(again['point'], { x: 3 });
  assert.deepStrictEqual(again['money'], { $: 1.5, at: new Date(0) });
  assert.deepStrictEqual(again['tree'], new Map([['a', 1]]));
  assert.deepStrictEqual(again['n'], 5);
  assert.deepStrictEqual({ ...(again['error'] as object), stack: '' }, { code: 'E1', name: 'TypeError', message: 'wrong', stack: '', cause: 'why' });
  assert.deepStrictEqual(again['hole'], [undefined, 1]);
  assert.equal('gone' in again, false);
});

test('toJSON that loops, throws or says itself ends', () => {
  const throws = { toJSON(): never { throw new Error('no'); } };
  const self: { toJSON?: unknown; x: number } = { x: 1 };
  self.toJSON = () => self;
  class Endless { toJSON(): unknown { return new Endless(); } }
  assert.deepEqual(traced([throws, self]).slice(0, 2), ['dropped /0 Object', 'simplified /1 Object']);
  assert.equal(encode([new Endless()]).dropped.length, 1);
  assert.deepStrictEqual((back([self]) as unknown[])[0], { x: 1 });
});

test('a proxy that throws, and values of another realm', () => {
  const proxy = new Proxy({}, { ownKeys() { throw new Error('no'); } });
  assert.deepEqual(traced({ proxy }), ['dropped /proxy Object']);
  const foreign = runInNewContext('({ d: new Date(0), m: new Map([[1, 2]]), o: { a: [1] }, r: /x/ })') as object;
  assert.deepEqual(traced(foreign), []);
  assert.deepEqual(back(foreign), { d: new Date(0), m: new Map([[1, 2]]), o: { a: [1] }, r: /x/ });
});

test('deep values are cut where the daemon would refuse them', () => {
  let deep: unknown = 1;
  for (let i = 0; i < 2000; i++) deep = i % 2 ? [deep] : { d: deep };
  const { dropped, bytes } = encode(deep);
  assert.equal(dropped.length, 1);
  assert.match(dropped[0]!.reason, /nested more than 900 deep/);
  assert.ok(bytes.length < 10_000);
});

test('with refuse nothing is dropped or simplified', () => {
  const value = { ok: new Date(), list: [1, { f() {} }], gone: undefined };
  assert.throws(() => encode(value, 'refuse'), (error: NotSerializable) => {
    assert.equal(error.code, 'not_serializable');
    assert.match(error.message, /\/list\/1\/f \(function\) cannot be saved; \/gone \(undefined\) is left out/);
    assert.deepEqual(error.traces.map((t) => t.path), ['/list/1/f', '/gone']);
    return true;
  });
  assert.equal(encode({ ok: new Date(), n: NaN }, 'refuse').dropped.length, 0);
  for (const root of [() => 1, Symbol('x'), Promise.resolve()]) assert.throws(() => encode(root), { code: 'not_serializable' });
  assert.throws(() => encode(undefined), { code: 'invalid' });
});

test('lists of places do not grow without end', () => {
  const { dropped } = encode(Array.from({ length: 5000 }, () => () => 1));
  assert.equal(dropped.length, 1001);
  assert.match(dropped[1000]!.reason, /4000 more/);
});

test('what the Python client writes is read, and what is unknown stays as it is', () => {
  const python = '{"n":{"$ckpt":"int","value":"-0x1f"},"f":{"$ckpt":"float","value":"nan"},"b":{"$ckpt":"bytes","value":"AQI="},"s":{"$ckpt":"set","value":[1,2]},"t":{"$ckpt":"tuple","value":[1,{"$ckpt":"int","value":"9"}]},"l":{"$ckpt":"str","value":"YeOCouegiA=="},"micro":{"$ckpt":"datetime","value":"2026-03-01T12:00:00.123456+02:00"},"day":{"$ckpt":"datetime","value":"2026-03-01T12:00:00.120+00:00"},"d":{"$ckpt":"dict","value":[[1,"one"]]},"k":{"$ckpt":"dict","value":[["$ckpt",1]]}}';
  const state = decode(python) as Record<string, unknown>;
  assert.equal(state['n'], -31n);
  assert.ok(Number.isNaN(state['f']));
  assert.deepStrictEqual(state['b'], new Uint8Array([1, 2]));
  assert.deepStrictEqual(state['s'], new Set([1, 2]));
  assert.deepStrictEqual(state['d'], new Map([[1, 'one']]));
  assert.deepStrictEqual(state['k'], { $ckpt: 1 });
  assert.deepStrictEqual(state['day'], new Date('2026-03-01T12:00:00.120Z'));
  for (const text of ['00', '00.120', '00.120000']) assert.deepStrictEqual(decode(`{"$ckpt":"datetime","value":"2026-03-01T12:00:${text}+00:00"}`), new Date(`2026-03-01T12:00:${text.slice(0, 6)}Z`));
  assert.ok(state['t'] instanceof Tagged && state['micro'] instanceof Tagged);
  const again = JSON.parse(text(state)) as Record<string, unknown>;
  const first = JSON.parse(python) as Record<string, unknown>;
  for (const key of ['t', 'micro', 'k', 'f', 's', 'd']) {
    if (key === 'k') assert.deepStrictEqual(back(state['k']), state['k']);
    else assert.deepStrictEqual(again[key], first[key], key);
  }
  assert.equal(decode('{"$ckpt":"str","value":"7aCA"}'), '\ud800');
  assert.equal(decode('{"$ckpt":"str","value":"YeKCrO2ggGLtv79j"}'), 'a€\ud800b\udfffc');
  for (const odd of ['{"$ckpt":"int","value":"x"}', '{"$ckpt":"set","value":1}', '{"$ckpt":"constructor"}', '{"$ckpt":5}', '{"$ckpt":"url","value":"::"}', '{"$ckpt":"bytes","value":"","of":"toString"}', '{"$ckpt":"float","value":"toString"}']) {
    assert.deepStrictEqual({ ...(decode(odd) as object) }, JSON.parse(odd), odd);
    assert.equal(text(decode(odd)), odd);
  }
});
