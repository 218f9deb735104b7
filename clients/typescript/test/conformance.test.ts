import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { bin, script } from './world.js';

const python = process.env['PYTHON'] ?? 'python3';

test("LangGraph's checkpointer conforms", { timeout: 300_000 }, (t) => {
  if (spawnSync(python, ['--version']).status !== 0) return t.skip(`${python} is not here: the conformance test is written in Python`);
  const kit = fileURLToPath(new URL('../../conformance/conformance.py', import.meta.url));
  const ran = spawnSync(python, [kit, '--bin', bin, '--', process.execPath, script('child-conform.js')], { encoding: 'utf8' });
  assert.equal(ran.status, 0, ran.stdout + ran.stderr);
  assert.equal(ran.stdout.split('\n').filter((line) => line.startsWith('ok')).length, 6, ran.stdout);
});
