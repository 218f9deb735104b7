import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { isSidecarError, type Prompt, type Sidecar, Unanswered } from 'ckptsidecar';

import { child, until, World } from './world.js';

async function openPrompt(operator: Sidecar): Promise<Prompt> {
  let prompts: Prompt[] = [];
  await until('a question', async () => (prompts = (await operator.prompts({ open: true })).prompts).length === 1);
  return prompts[0]!;
}

const noted = (log: string): string => (existsSync(log) ? readFileSync(log, 'utf8') : '');

test('agent and daemon are killed while the agent waits, and it gets the answer when it is resumed', async () => {
  const world = await World.start();
  const log = join(world.dir, 'log');
  const operator = world.client();
  const first = child('child-asker.js', world.env, log);
  const prompt = await openPrompt(operator);
  assert.deepEqual([prompt.kind, prompt.status, prompt.choices], ['question', 'open', ['approve', 'reject']]);
  await world.stop('SIGKILL');
  first.kill('SIGKILL');
  await first.ended;
  await world.start();
  await operator.answer(prompt.id, 'approve', { data: { env: 'prod' } });
  assert.equal(noted(log), '');
  const second = child('child-asker.js', world.env, log);
  assert.deepEqual(await second.ended, { code: 0, signal: null }, second.output());
  assert.equal(noted(log), 'approve prod\n');
  assert.equal((await operator.prompts()).prompts.length, 1);
});

test('the daemon restarts while an agent waits; the answer counts once', async () => {
  const world = await World.start();
  const log = join(world.dir, 'log');
  const operator = world.client();
  const agent = child('child-asker.js', world.env, log);
  const { id } = await openPrompt(operator);
  await world.stop('SIGKILL');
  await world.start();
  await assert.rejects(operator.answer(id, 'approve', { data: { env: 'moon' } }), (e) => isSidecarError(e, 'schema_mismatch'));
  const said = await operator.answer(id, 'approve', { data: { env: 'test' } });
  assert.deepEqual(await operator.answer(id, 'approve', { data: { env: 'test' } }), said);
  await assert.rejects(operator.answer(id, 'reject', { data: { env: 'test' } }), (e) => isSidecarError(e, 'conflict'));
  assert.deepEqual(await agent.ended, { code: 0, signal: null }, agent.output());
  assert.equal(noted(log), 'approve test\n');
});

test('a question may suspend its run, expire, and be given up', async () => {
  const world = await World.start();
  const client = world.client();
  const run = await client.agent('a').start({ initial: { n: 1 } });
  const suspended = await run.ask('Go on?', { suspend: true }).catch((e: unknown) => e as Unanswered);
  assert.ok(suspended instanceof Unanswered && suspended.prompt.status === 'open');
  assert.equal((await client.agent('a').info()).status, 'suspended');
  await client.answer(suspended.prompt.id, 'yes');
  const again = await client.agent('a').start({ initial: { n: 1 } });
  assert.deepEqual(again.plan?.questions.map((q) => q.choice), ['yes']);
  assert.equal((await again.ask('Go on?')).choice, 'yes');
  const late = await again.ask('Quick?', { expires: 50 }).catch((e: unknown) => e as Unanswered);
  assert.ok(late instanceof Unanswered && late.prompt.status === 'expired');
  await assert.rejects(again.ask('Slow?', { signal: AbortSignal.timeout(50) }), { name: 'TimeoutError' });
  await again.end();
});
