import assert from 'node:assert/strict';
import { test } from 'node:test';

import { diff } from '../dist/esm/delta.js';

/** What the daemon makes of a change, written anew from docs of the form. */
function apply(base: Buffer, change: Buffer): Buffer {
  const end = change.indexOf(10);
  const operations = JSON.parse(change.subarray(0, end).toString()) as (number | [number, number])[];
  let at = end + 1;
  const parts = operations.map((operation) => {
    if (typeof operation === 'number') {
      assert.ok(operation >= 1 && at + operation <= change.length);
      return change.subarray(at, (at += operation));
    }
    const [offset, length] = operation;
    assert.ok(offset >= 0 && length >= 1 && offset + length <= base.length);
    return base.subarray(offset, offset + length);
  });
  assert.equal(at, change.length, 'literal bytes are left over');
  return Buffer.concat(parts);
}

/** Numbers that are the same in each run. */
function random(seed: number): (below: number) => number {
  return (below) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
}

function words(pick: (below: number) => number, length: number): Buffer {
  const list = ['read', 'write', 'the file', '{"role":"tool","content":"', '"},', '\\n', 'ünï', 'if err != nil {', '    return', '0123456789'];
  let text = '';
  while (text.length < length) text += list[pick(list.length)]! + pick(100);
  return Buffer.from(text);
}

test('a change makes the state again', () => {
  const pick = random(7);
  let found = 0;
  for (let round = 0; round < 400; round++) {
    const base = words(pick, 1 + pick(40_000));
    let state: Buffer = base;
    for (let edits = pick(6); edits > 0; edits--) {
      const at = pick(state.length + 1);
      const cut = Math.min(pick(4) === 0 ? pick(20_000) : pick(40), state.length - at);
      state = Buffer.concat([state.subarray(0, at), words(pick, pick(3) === 0 ? 1 + pick(3000) : 1 + pick(30)), state.subarray(at + cut)]);
      if (pick(8) === 0) state = Buffer.concat([state.subarray(state.length >> 1), state.subarray(0, state.length >> 1)]); // halves in turn
    }
    const change = diff(base, state);
    if (!change) continue;
    found++;
    assert.ok(change.length <= state.length / 2);
    assert.ok(apply(base, change).equals(state), `round ${round}`);
  }
  assert.ok(found > 250, `only ${found} changes were found`);
});

test('what is sent of a growing history is little', () => {
  const pick = random(3);
  const messages = Array.from({ length: 330 }, (_, n) => ({ role: 'tool', id: n, content: words(pick, 1500).toString() }));
  const at = (step: number, list: unknown[]): Buffer => Buffer.from(JSON.stringify({ step, messages: list, end: { a: step } }));
  const base = at(99, messages);
  const cases: [string, Buffer, number][] = [
    ['a message more and a counter that grows', at(100, [...messages, { role: 'assistant', content: 'x'.repeat(1500) }]), 2000],
    ['one in the middle edited', at(99, messages.map((m, n) => (n === 150 ? { ...m, content: 'edited' } : m))), 400],
    ['the first hundred cut away', at(99, messages.slice(100)), 400],
    ['three edits', at(99, messages.map((m, n) => (n % 110 === 5 ? { ...m, note: `edit ${n}` } : m))), 600],
    ['the same again', at(99, messages), 50],
  ];
  for (const [name, state, most] of cases) {
    const change = diff(base, state);
    assert.ok(change && change.length <= most, `${name}: ${change?.length} bytes`);
    assert.ok(apply(base, change).equals(state), name);
  }
});

test('small states with much cut away are found too', () => {
  const messages = Array.from({ length: 60 }, (_, n) => ({ n, text: `message ${n} `.repeat(40) }));
  const base = Buffer.from(JSON.stringify({ step: 273, messages: messages.slice(0, 40) }));
  const state = Buffer.from(JSON.stringify({ step: 280, messages: [...messages.slice(0, 3), ...messages.slice(23, 41)] }));
  const change = diff(base, state);
  assert.ok(change && change.length < 800, `${change?.length} bytes`);
  assert.ok(apply(base, change).equals(state));
});

test('nothing in common is sent whole, and soon seen', () => {
  const pick = random(5);
  const noise = (): Buffer => Buffer.from(Array.from({ length: 1 << 19 }, () => pick(256)));
  const [one, other] = [noise(), noise()];
  const began = performance.now();
  assert.equal(diff(one, other), undefined);
  console.log(`two states of 512 KiB with nothing in common: ${(performance.now() - began).toFixed(1)} ms`);
  assert.equal(diff(Buffer.alloc(0), Buffer.from('x'.repeat(10_000))), undefined);
});

test('repetitive text is no trap', () => {
  const base = Buffer.from('ab '.repeat(100_000));
  const state = Buffer.from('ab '.repeat(50_000) + 'new' + 'ab '.repeat(50_001));
  const change = diff(base, state)!;
  assert.ok(change.length < 500);
  assert.ok(apply(base, change).equals(state));
});
