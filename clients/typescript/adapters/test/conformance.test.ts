import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { bin } from '../../test/world.js';

const kit = fileURLToPath(new URL('../../../../../conformance/conformance.py', import.meta.url));
const program = fileURLToPath(new URL('conform.js', import.meta.url));
const python = process.env['PYTHON'] ?? 'python3';

for (const adapter of ['openai-agents', 'claude-agent', 'ai-sdk', 'mastra']) {
  test(`${adapter} conforms`, { timeout: 300_000 }, (t) => {
    if (spawnSync(python, ['--version']).status !== 0) return t.skip(`${python} is not here: the conformance test is written in Python`);
    const ran = spawnSync(python, [kit, '--bin', bin, '--', process.execPath, program, adapter], { encoding: 'utf8' });
    assert.equal(ran.status, 0, ran.stdout + ran.stderr);
    assert.equal(ran.stdout.split('\n').filter((line) => line.startsWith('ok')).length, 6, ran.stdout);
  });
}
