import assert from 'node:assert/strict';
import { test } from 'node:test';

import { emptyCheckpoint, uuid6 } from '@langchain/langgraph-checkpoint';

import { SidecarSaver } from 'ckptsidecar/langgraph';

import { World } from './world.js';

test('a graph hears of its drift, and speaks', async (t) => {
  const world = await World.start();
  const told: string[] = [];
  const saver = new SidecarSaver({ socket: world.socket, spool: { folder: world.spool }, onDrift: (drift, { thread }) => told.push(`${thread} ${drift.verdict}`) });
  t.after(() => saver.close());
  const checkpoint = (n: number): ReturnType<typeof emptyCheckpoint> => ({ ...emptyCheckpoint(), id: uuid6(n), channel_values: { a: n }, channel_versions: { a: n } });
  const first = { configurable: { thread_id: 't', checkpoint_ns: '' } };
  const where = await saver.put(first, checkpoint(1), { source: 'loop', step: 0, parents: {} }, { a: 1 });
  assert.equal(saver.drift(where).verdict, 'none');
  const found = await saver.report(where, { rule: 'wrong-file', message: 'not its file', severity: 'critical' });
  assert.equal(saver.drift(first).critical, true);
  const again = await saver.put(where, checkpoint(2), { source: 'loop', step: 1, parents: {} }, { a: 2 });
  assert.equal(saver.drift(again).critical, true, 'the verdict comes with every put');
  assert.ok((await saver.dismiss(where, found.id)).dismissed_at);
  assert.equal(saver.drift(where).critical, false);
  assert.deepEqual(told, ['t critical']);
  await assert.rejects(saver.report({ configurable: { thread_id: 'nobody' } }, { rule: 'r', message: 'm' }), { code: 'invalid' });
});
