import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { child, sleep, World } from './world.js';

const kills = 20;
const rounds = 40;

test('an agent that is killed twenty times finishes, and each reported effect is there once', { timeout: 170_000 }, async () => {
  const world = await World.start();
  const log = join(world.dir, 'log');
  const lines = (): string[] => (existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : []);
  let killed = 0;
  let asked = 0;
  for (;;) {
    const agent = child('child-loop.js', world.env, log);
    const seen = lines().length;
    if (killed < kills) {
      // It is let begin, and dies at some moment of its work.
      while (lines().length === seen && agent.exitCode === null) await sleep(2);
      await sleep(Math.random() * 60);
      agent.kill('SIGKILL');
    }
    const { code, signal } = await agent.ended;
    if (signal === 'SIGKILL') killed++;
    else if (code === 0) break;
    else {
      // Somebody must decide what became of an operation: it is looked up.
      assert.match(agent.output(), /nobody knows whether it took effect/, agent.output());
      asked++;
      const { operations } = JSON.parse(world.run('operations', 'looper', '--status', 'uncertain', '--json')) as { operations: { key: string }[] };
      assert.equal(operations.length, 1);
      const { key } = operations[0]!;
      world.run('operation', 'resolve', 'looper', key, lines().includes(`effect ${key}`) ? 'it_did' : 'it_did_not', '--reason', 'it was looked up');
    }
    assert.ok(killed + asked < 200, 'it does not get on');
  }
  const begun: Record<string, number> = {};
  for (const line of lines()) if (line.startsWith('report begin')) begun[line.split(' ')[2]!] = (begun[line.split(' ')[2]!] ?? 0) + 1;
  console.log(`killed ${killed} times, an operator was asked ${asked} times, begun as ${JSON.stringify(begun)}`);
  assert.equal(killed, kills);
  check(lines());
  const agent = world.client().agent('looper');
  assert.deepEqual([(await agent.info()).status, (await agent.latest())?.state], ['completed', { n: rounds, log: Array.from({ length: rounds }, (_, n) => `t${n}`) }]);
  const { steps } = JSON.parse(world.run('steps', 'looper', '--limit', '1000', '--json')) as { steps: { key: string; status: string }[] };
  assert.deepEqual(steps.map((s) => [s.key, s.status]).sort(), Array.from({ length: rounds }, (_, n) => [`step-${n}`, 'succeeded']).sort());
});

/** Nothing takes effect again after it was reported, and no operation takes effect twice at all. */
function check(lines: string[]): void {
  for (let n = 0; n < rounds; n++) {
    for (const key of n % 3 === 0 ? [`step-${n}`, `operation-${n}`] : [`step-${n}`]) {
      assert.ok(lines.includes(`effect ${key}`), `${key} took no effect`);
      assert.ok(lines.includes(`report ${key}`), `${key} was not reported`);
      assert.ok(lines.lastIndexOf(`effect ${key}`) < lines.indexOf(`report ${key}`), `${key} took effect again after it was reported`);
    }
    if (n % 3 === 0) assert.equal(lines.filter((line) => line === `effect operation-${n}`).length, 1, `operation-${n} took effect once`);
  }
}
