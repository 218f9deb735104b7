// What the client costs, measured and printed. Nothing here is asserted about
// time: a machine that has other work would make it lie.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

import { script } from './world.js';

function bench(name: string, env: Record<string, string>): string {
  const ran = spawnSync(process.execPath, [script(`../bench/${name}.mjs`)], { cwd: script('..'), env: { ...process.env, ...env }, encoding: 'utf8' });
  assert.equal(ran.status, 0, ran.stderr);
  return ran.stdout.trim();
}

test('a save of 2 KiB beside the Go client', { timeout: 60_000 }, () => {
  console.log(bench('small', { ROUNDS: '2', MS: '700' }));
});

test('a history of half a megabyte: only the change beside the whole', { timeout: 60_000 }, () => {
  const said = bench('history', { ROUNDS: '2', SAVES: '60' });
  assert.doesNotMatch(said, /same states: false/);
  console.log(said);
});
