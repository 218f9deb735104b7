import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { get } from 'node:http';
import { test } from 'node:test';

import { encode, type Saved, Sidecar, uuid7, version } from 'ckptsidecar';
import { World } from './world.js';

const world = await World.start();
const sidecar = world.client();

function onDaemon(saved: Saved): Extract<Saved, { stored: 'daemon' }> {
  assert.equal(saved.stored, 'daemon');
  return saved as Extract<Saved, { stored: 'daemon' }>;
}

test('the version is that of the package', () => {
  const { version: said } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string };
  assert.equal(version, said);
});

test('save, latest, restore, list, diff', async () => {
  const agent = sidecar.agent('basic');
  assert.equal(await agent.latest(), null);
  assert.deepEqual(await agent.list(), { checkpoints: [], next: null });
  const first = onDaemon(await agent.save({ step: 1, note: 'ünï \u2028 😀' }, { labels: { branch: 'main=x', 'a/b': 'ü' }, metadata: { model: 'mö-1\u007f', n: 1 } }));
  assert.deepEqual(first.labels, { branch: 'main=x', 'a/b': 'ü' });
  assert.deepEqual(first.metadata, { model: 'mö-1\u007f', n: 1 });
  const second = onDaemon(await agent.save({ step: 2 }, { kind: 'recovery', step: 's/1', program: { source: 'a()\nb()', executed: 4 } }));
  assert.deepEqual([second.kind, second.step, second.parent, second.program], ['recovery', 's/1', first.id, { source: 'a()\nb()', executed: 4 }]);
  const latest = await agent.latest<{ step: number }>();
  assert.deepEqual([latest?.id, latest?.state.step, latest?.bytes.toString()], [second.id, 2, '{"step":2}']);
  assert.equal((await agent.latest({ kind: 'routine' }))?.id, first.id);
  const restored = await agent.restore({ checkpoint: first.id, reason: 'to try' });
  assert.deepEqual(restored.state, { step: 1, note: 'ünï \u2028 😀' });
  assert.equal(onDaemon(await agent.save({ step: 3 })).parent, first.id, 'the next save comes from what was restored');
  assert.deepEqual((await agent.list({ labels: { branch: 'main=x' } })).checkpoints.map((c) => c.id), [first.id]);
  const diff = await agent.diff(first, second);
  assert.deepEqual(diff.patch.map((p) => [p.op, p.path]).sort(), [['remove', '/note'], ['replace', '/step']]);
  assert.deepEqual((await agent.checkpoint(second.id)).state, { step: 2 });
  assert.equal((await agent.mark(second.id, { pinned: true })).pinned, true);
  await assert.rejects(agent.delete(second.id), { code: 'conflict' });
  await agent.mark(second.id, { pinned: false, labels: { good: 'yes' } });
  assert.equal((await agent.delete(second.id)).checkpoint, second.id);
});

test('bytes and text are saved as they are', async () => {
  const agent = sidecar.agent('bytes');
  const bytes = new Uint8Array([0, 1, 2, 255]);
  const going = agent.save(bytes);
  bytes.fill(7); // the caller's again at once
  onDaemon(await going);
  assert.deepStrictEqual((await agent.latest())?.state, new Uint8Array([0, 1, 2, 255]));
  await agent.save('plain ü', { contentType: 'text/plain' });
  assert.equal(Buffer.from((await agent.latest())?.state as Uint8Array).toString(), 'plain ü');
  await agent.save(Buffer.from('{"exact" : 12345678901234567890}'), { contentType: 'application/json' });
  const exact = await agent.latest();
  assert.equal(exact?.bytes.toString(), '{"exact" : 12345678901234567890}');
  await agent.save(new Uint8Array(0), { allowEmpty: true });
  assert.equal((await agent.latest())?.state.length, 0);
  await assert.rejects(agent.save({ a: 1 }, { contentType: 'text/plain' }), { code: 'invalid' });
});

test('an empty state is refused unless it is asked for', async () => {
  const world = await World.start();
  const agent = world.client().agent('empty');
  await agent.save({ n: 1 });
  const refused = { code: 'invalid', message: /the state is empty, so nothing was saved: to save an empty state, say allowEmpty: true/ };
  await assert.rejects(agent.save(new Uint8Array(0)), refused);
  await assert.rejects(agent.save('', { contentType: 'text/plain' }), refused);
  assert.deepEqual((await agent.latest())?.state, { n: 1 });
  await agent.save('', { contentType: 'text/plain', allowEmpty: true });
  assert.equal((await agent.latest())?.size, 0);
});

test('what a state loses is in the answer, and told once', async () => {
  const agent = sidecar.agent('loses');
  const state = { keep: new Map([[1, 'x']]), f: () => 1 };
  const before = world.warnings.length;
  const saved = onDaemon(await agent.save(state));
  await agent.save({ ...state, keep: new Map() });
  assert.deepEqual(saved.dropped, [{ path: '/f', type: 'function', reason: 'cannot be saved' }]);
  assert.equal(world.warnings.length, before + 1);
  assert.match(world.warnings[before]!, /agent loses, run main, this was dropped: \/f \(function\)/);
  assert.deepStrictEqual((await agent.latest({ kind: 'routine' }))?.state.keep, new Map());
  await assert.rejects(agent.save(state, { unserializable: 'refuse' }), { code: 'not_serializable' });
  await assert.rejects(world.client({ unserializable: 'refuse' }).agent('loses').save(state), { code: 'not_serializable' });
});

test('the same id never saves twice', async () => {
  const agent = sidecar.agent('ids');
  const id = uuid7();
  const first = onDaemon(await agent.save({ n: 1 }, { id }));
  const again = onDaemon(await agent.save({ n: 1 }, { id }));
  assert.deepEqual([again.seq, again.replayed, first.replayed], [first.seq, true, false]);
  await assert.rejects(agent.save({ n: 2 }, { id }), { code: 'idempotency_mismatch', status: 422 });
  await assert.rejects(agent.save({ n: 2 }, { id: 'x' }), { code: 'invalid' });
  const ids = Array.from({ length: 20_000 }, () => uuid7());
  assert.deepEqual([...ids].sort(), ids, 'ids grow');
  assert.equal(new Set(ids).size, ids.length);
});

test('wrong names are refused before anything is sent', async () => {
  assert.throws(() => sidecar.agent('../x'), { code: 'invalid' });
  assert.throws(() => sidecar.agent(), { code: 'invalid' });
  assert.throws(() => sidecar.agent('a').save(1, { run: '../../metrics' }), { code: 'invalid' });
  await assert.rejects(sidecar.agent('a').save(1, { labels: { 'bad key': 'x' } }), { code: 'invalid' });
  await assert.rejects(sidecar.agent('a').save(1, { labels: { k: '\ud800' } }), { code: 'invalid' });
  await assert.rejects(sidecar.agent('nobody').restore(), { code: 'not_found' });
  await assert.rejects(sidecar.agent('a').checkpoint('../../status'), { code: 'invalid' });
});

for (const whole of [undefined, false]) test(`a large state goes as a change, ${whole === false ? 'always' : 'where that is quicker'}, and is the same to the last byte`, async () => {
  const agent = world.client({ whole }).agent(`grows-${whole}`);
  await agent.setPolicy({ routine_keep: 0 });
  const state = { step: 0, messages: [] as unknown[] };
  const hashes: [string, string][] = [];
  for (let n = 0; n < 60; n++) {
    state.step = n * 7;
    state.messages.push({ n, text: `message ${n} `.repeat(40), odd: n % 9 === 0 ? undefined : NaN });
    if (n === 40) state.messages.splice(3, 20);
    const saved = onDaemon(await agent.save(state));
    hashes.push([saved.id, createHash('sha256').update(encode(state).bytes).digest('hex')]);
  }
  for (const [id, sha256] of hashes) {
    const { bytes } = await agent.checkpoint(id);
    assert.equal(createHash('sha256').update(bytes).digest('hex'), sha256);
  }
  assert.deepStrictEqual((await agent.latest())?.state.messages.length, 40);
  assert.ok(onDaemon(await agent.save(state)).stored_size < 500, 'nothing new is stored');
});

test('a base that is gone asks for the whole', async () => {
  const agent = world.client({ whole: false }).agent('base-gone');
  const big = (n: number): object => ({ n, text: 'words and words '.repeat(4000) });
  const first = onDaemon(await agent.save(big(1)));
  await agent.delete(first.id);
  const second = onDaemon(await agent.save(big(2)));
  assert.deepEqual((await agent.checkpoint(second.id)).state, big(2));
  await world.stop('SIGKILL');
  await world.start();
  const third = onDaemon(await agent.save(big(3)));
  assert.deepEqual((await agent.checkpoint(third.id)).state, big(3));
});

test('where a policy redacts, the daemon has other bytes, and the whole is sent', async () => {
  const agent = world.client({ whole: false }).agent('redacts');
  await agent.setPolicy({ secrets: 'redact' });
  const state = { password: 'hunter2hunter2', text: 'words '.repeat(5000), n: 0 };
  for (state.n = 1; state.n < 4; state.n++) await agent.save(state);
  const kept = await agent.latest();
  assert.notEqual(kept?.state.password, state.password);
  assert.equal(kept?.state.n, 3);
  assert.equal(kept?.state.text, state.text);
});

test('sixteen tasks share a client, and their saves stay in order', async () => {
  const shared = await World.start();
  const agent = shared.client().agent('tasks');
  await agent.setPolicy({ routine_keep: 0 });
  const sent: number[] = [];
  let n = 0;
  await Promise.all(
    Array.from({ length: 16 }, async (_, task) => {
      for (let i = 0; i < 20; i++) {
        sent.push(++n);
        await agent.save({ n, task });
      }
    }),
  );
  const kept: number[] = [];
  for await (const checkpoint of agent.all({ limit: 100 })) kept.unshift((await agent.checkpoint(checkpoint.id)).state.n as number);
  assert.deepEqual(kept, sent);
  assert.equal((await connections(shared.socket)) ?? 1, 1, 'over one connection');
});

/** How many connections the daemon has, besides the one that asks. Undefined for who may not know. */
async function connections(socketPath: string): Promise<number | undefined> {
  const text = await new Promise<string>((done, failed) => {
    get({ socketPath, path: '/metrics', agent: false }, (res) => {
      let body = '';
      res.on('data', (part: Buffer) => (body += String(part)));
      res.on('end', () => done(body));
    }).on('error', failed);
  });
  const found = /^ckptsidecar_connections (\d+)$/m.exec(text);
  return found ? Number(found[1]) - 1 : undefined;
}

test('states that are too large are refused, whatever their size', async () => {
  const small = await World.start('limits.max_body=1MiB');
  const agent = small.client().agent('large');
  for (const size of [1 << 21, 5 << 20, 30 << 20]) {
    await assert.rejects(agent.save('x'.repeat(size)), { code: 'too_large' }, `${size} bytes`);
  }
  assert.equal(small.spooled().length, 0);
  await assert.rejects(sidecar.agent('large').save(new Uint8Array(65 << 20)), { code: 'too_large' });
  onDaemon(await agent.save('fits'));
  const big = onDaemon(await sidecar.agent('large').save(Buffer.alloc(60 << 20, 'text ')));
  assert.equal(big.size, 60 << 20);
});

test('a client closes and goes on', async () => {
  const client = new Sidecar({ socket: world.socket });
  await client.agent('closes').save(1);
  client.close();
  assert.equal((await client.agent('closes').latest())?.state, 1);
  assert.equal((await client.version()).name, 'ckptsidecar');
  client.close();
});
