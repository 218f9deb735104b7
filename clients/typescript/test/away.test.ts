import assert from 'node:assert/strict';
import { test } from 'node:test';

import { child, type World as W, sleep, World } from './world.js';

const away = 10_000;
const deadline = 700;

/** Three clients save while the daemon is away for ten seconds. */
async function outage(how: string, go: (world: W) => Promise<void>, back: (world: W) => Promise<void>): Promise<void> {
  const world = await World.start();
  const names = ['one', 'two', 'three'];
  for (const name of names) await world.client().agent(name).setPolicy({ routine_keep: 0 });
  const agents = names.map((name) => child('child-saver.js', world.env, name, String(away + 4500), String(deadline)));
  await sleep(1500);
  await go(world);
  await sleep(away);
  await back(world);
  for (const [i, agent] of agents.entries()) {
    const { code } = await agent.ended;
    assert.equal(code, 0, agent.output());
    const said = JSON.parse(agent.output()) as { n: number; daemon: number; spool: number; nowhere: number; longest: number };
    assert.equal(said.nowhere, 0);
    assert.ok(said.spool > 20, `${how}: only ${said.spool} were spooled`);
    const client = world.client();
    await client.replay();
    const kept: number[] = [];
    for await (const checkpoint of client.agent(names[i]!).all()) kept.unshift((await client.agent(names[i]!).checkpoint(checkpoint.id)).state.n as number);
    assert.deepEqual(kept, Array.from({ length: said.n }, (_, at) => at + 1), `${how}, ${names[i]}: every save once and in order`);
    console.log(`${how}, ${names[i]}: ${said.n} saves, ${said.daemon} to the daemon and ${said.spool} to the spool, the longest ${said.longest} ms (deadline ${deadline} ms)`);
  }
  assert.deepEqual(world.spooled(), []);
  assert.deepEqual(world.spooled('rejected'), []);
}

test('the daemon is away for ten seconds under three clients', { timeout: 120_000 }, async () => {
  const outages = await Promise.allSettled([
    outage('stopped', (w) => w.stop(), (w) => w.start()),
    outage('killed', (w) => w.stop('SIGKILL'), (w) => w.start()),
    outage('frozen', async (w) => w.freeze(), async (w) => w.thaw()),
  ]);
  for (const { status, reason } of outages as PromiseRejectedResult[]) if (status === 'rejected') throw reason;
});

test('steps without a name have the name that the daemon gives', async () => {
  const world = await World.start();
  await world.stop();
  const names = {
    search: 'search', 'search-3': 'search', s1: 's', fetch_page_12: 'fetch_page', 'step/7': 'step', call_7: 'call',
    'search-018f3a52-7b2c-7e11-9d4e-2b7a61c0ffee': 'search', toolu_01AbCdEf9xyz: 'toolu', 'report-2026-11-28': 'report',
    'report-2026-11-28T10:00:00Z': 'report', '17': 'step', '018f3a52-7b2c-7e11-9d4e-2b7a61c0ffee': 'step', 'read file 3': 'read file',
    utf8: 'utf', 'größe-4': 'größe', 'try-2-of-3': 'try-2-of', a: 'a', '-': 'step',
  }; // of step_name_test.go
  const agent = world.client({ deadline: 200, startDeadline: 200 }).agent('names');
  await agent.run(async (run) => {
    for (const key of Object.keys(names)) await run.step(key, () => 1);
    await run.end('suspended');
  });
  await agent.run(async (run) => {
    assert.deepEqual(Object.fromEntries(run.plan!.completed_steps.map((step) => [step.key, step.name])), names);
    await run.end('suspended');
  });
  await world.start();
  await world.client().replay();
  const { steps } = JSON.parse(world.run('steps', 'names', '--json')) as { steps: { key: string; name: string }[] };
  assert.deepEqual(Object.fromEntries(steps.map((step) => [step.key, step.name])), names);
});
