import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Drift, type Run } from 'ckptsidecar';
import { World } from './world.js';

const world = await World.start();
const sidecar = world.client();

const search = (_: string): string => 'nothing';

test('ten equal calls are a loop, in each form of the documents', async () => {
  type Form = [call: (run: Run, k: number) => Promise<unknown>, verdict: string, rule: string];
  const forms: Record<string, Form> = {
    'a tool': [(run) => run.tool('search', search)('x'), 'critical', 'repeat'],
    'a key and arguments': [(run, k) => run.step(`search-${k}`, () => search('x'), { args: { q: 'x' } }), 'critical', 'repeat'],
    'a key, a name and arguments': [(run, k) => run.step(`call-${k}`, () => search('x'), { name: 'search', args: { q: 'x' } }), 'critical', 'repeat'],
    'a key alone': [(run, k) => run.step(`search-${k}`, () => search('x')), 'warn', 'repeated_result'],
    'a key and a name': [(run, k) => run.step(`call ${k}`, () => search('x'), { name: 'search' }), 'warn', 'repeated_result'],
  };
  for (const [form, [call, verdict, rule]] of Object.entries(forms)) {
    const agent = sidecar.agent(form.replaceAll(/\W+/g, '-'));
    await agent.run(async (run) => {
      for (let k = 0; k < 10; k++) await call(run, k);
      assert.equal(run.drift().verdict, verdict, form);
    });
    const { findings } = await agent.drift();
    assert.deepEqual([...new Set(findings.map((finding) => finding.rule))], [rule], form);
  }
});

test('steps that say too little are told so', async () => {
  const agent = sidecar.agent('blind');
  await agent.run(async (run) => {
    for (let k = 0; k < 20; k++) await run.step(`search-${k}`, () => `page ${k}`);
    assert.equal(run.drift().verdict, 'info');
    assert.match(run.drift().advice ?? '', /give steps a name and arguments/);
  });
});

test('the drift of an agent that is not known is none', async () => {
  const drift = await sidecar.agent('nobody').drift();
  assert.ok(drift instanceof Drift);
  assert.deepEqual([drift.verdict, drift.findings, drift.critical], ['none', [], false]);
});
