import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { World } from '../../test/world.js';

const root = fileURLToPath(new URL('../../..', import.meta.url)); // of the adapters' package
const repository = join(root, '..', '..', '..');
const world = await World.start();
const config = join(world.dir, 'claude'); // where Claude Code keeps its transcripts

/** An empty folder in which the package and the SDKs are found. */
function empty(name: string): string {
  const path = join(root, 'build', name);
  rmSync(path, { recursive: true, force: true });
  mkdirSync(path, { recursive: true });
  copyFileSync(join(repository, 'examples', 'sessions', 'package.json'), join(path, 'package.json'));
  return path;
}

function compile(path: string): void {
  const compilerOptions = { target: 'ES2022', lib: ['ES2022', 'DOM'], module: 'Node16', strict: true, types: ['node'], skipLibCheck: true };
  writeFileSync(join(path, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }));
  const ran = spawnSync(process.execPath, [createRequire(import.meta.url).resolve('typescript/bin/tsc'), '-p', path], { encoding: 'utf8' });
  assert.equal(ran.status, 0, ran.stdout);
}

/** What a program prints. */
function said(program: string, args: string[] = [], env: Record<string, string> = {}): string[] {
  const ran = spawnSync(process.execPath, [program, ...args], { env: { ...world.env, CLAUDE_CONFIG_DIR: config, ...env }, encoding: 'utf8', timeout: 60_000 });
  assert.equal(ran.status, 0, ran.stderr);
  return ran.stdout.split('\n').slice(0, -1);
}

test('every example of the document compiles, and prints what it says', { timeout: 120_000 }, async (t) => {
  const path = empty('snippets');
  const text = readFileSync(join(repository, 'docs', 'ADAPTERS.md'), 'utf8');
  const all = [...text.matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map((match, n) => ({ name: `snippet-${n + 1}`, code: match[1]! }));
  assert.equal(all.length, 7);
  for (const { name, code } of all) writeFileSync(join(path, `${name}.ts`), code);
  compile(path);
  for (const { name, code } of all) {
    const prints = [...code.matchAll(/\/\/ prints: (.*)$/gm)].map((match) => match[1]!.trimEnd());
    if (prints.length > 0) await t.test(name, () => assert.deepEqual(said(join(path, `${name}.js`)), prints));
  }
});

test('the examples go on in a second process where the first one was', { timeout: 120_000 }, () => {
  const path = empty('examples');
  for (const name of ['openai-agents.ts', 'claude-agent.ts']) copyFileSync(join(repository, 'examples', 'sessions', name), join(path, name));
  compile(path);
  const openai = (text: string): string[] => said(join(path, 'openai-agents.js'), ['demo', text]);
  assert.deepEqual([...openai('hello'), ...openai('and again')], ['you have said: hello', 'you have said: hello, and again']);
  const env = { CLAUDE_CODE: fileURLToPath(new URL('claude-code.js', import.meta.url)) };
  const claude = (...args: string[]): string => said(join(path, 'claude-agent.js'), args, env)[0]!;
  const [id, ...first] = claude('hello').split(' ');
  rmSync(join(config, 'projects'), { recursive: true });
  assert.deepEqual([first.join(' '), claude('and again', id!)], ['you have said: hello', `${id} you have said: hello, and again`]);
});
