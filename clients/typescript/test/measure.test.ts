// What the client costs, measured and printed. Nothing here is asserted about
// time: a machine that has other work would make it lie.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test, type TestContext } from 'node:test';

import { script } from './world.js';

/** Runs a script of bench/. Where the disk has no room for the measurement, it is skipped, and the answer is empty. */
function bench(t: TestContext, name: string, env: Record<string, string>): string {
  const ran = spawnSync(process.execPath, [script(`../bench/${name}.mjs`)], { cwd: script('..'), env: { ...process.env, ...env }, encoding: 'utf8' });
  if (ran.stderr.includes('free: measure less')) {
    t.skip(ran.stderr);
    return '';
  }
  assert.equal(ran.status, 0, ran.stderr);
  return ran.stdout.trim();
}

test('a save of 2 KiB beside the Go client', { timeout: 60_000 }, (t) => {
  console.log(bench(t, 'small', { ROUNDS: '2', MS: '700' }));
});

test('a history of half a megabyte: only the change beside the whole', { timeout: 60_000 }, (t) => {
  const said = bench(t, 'history', { ROUNDS: '2', SAVES: '60' });
  assert.doesNotMatch(said, /same states: false/);
  console.log(said);
});
