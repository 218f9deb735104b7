import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Drift, type Run } from 'ckptsidecar';
import { World } from './world.js';

const world = await World.start();
const sidecar = world.client();

const search = (_: string): string => 'nothing';

test('ten equal calls are a loop, in each form of the documents', async () => {
  const forms: Record<string, (run: Run, k: number) => Promise<unknown>> = {
    'a tool': (run) => run.tool('search', search)('x'),
    'a key and arguments': (run, k) => run.step(`search-${k}`, () => search('x'), { args: { q: 'x' } }),
    'a key, a name and arguments': (run, k) => run.step(`call-${k}`, () => search('x'), { name: 'search', args: { q: 'x' } }),
  };
  for (const [form, call] of Object.entries(forms)) {
    const agent = sidecar.agent(form.replaceAll(/\W+/g, '-'));
    await agent.run(async (run) => {
      for (let k = 0; k < 10; k++) await call(run, k);
      assert.equal(run.drift().verdict, 'critical', form);
    });
    const { findings } = await agent.drift();
    assert.deepEqual([...new Set(findings.map(({ rule }) => rule))], ['repeat'], form);
  }
});

test('steps that say too little are told so', async () => {
  const agent = sidecar.agent('blind');
  await agent.run(async (run) => {
    for (let k = 0; k < 20; k++) await run.step(`search-${k}`, () => search('x'));
    assert.equal(run.drift().verdict, 'info');
    assert.match(run.drift().advice ?? '', /give steps a name and arguments/);
  });
});

test('the drift of an agent that is not known is none', async () => {
  const drift = await sidecar.agent('nobody').drift();
  assert.ok(drift instanceof Drift);
  assert.deepEqual([drift.verdict, drift.findings, drift.critical], ['none', [], false]);
});
