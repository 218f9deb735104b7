import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import { bin, script, World } from './world.js';

const root = script('..');
const repository = join(root, '..', '..');
const sources = { docs: join(repository, 'docs', 'TYPESCRIPT.md'), once: join(repository, 'docs', 'OPERATIONS_ONCE.md'), langgraph: join(repository, 'docs', 'LANGGRAPH.md'), readme: join(root, 'README.md'), quickstart: join(repository, 'docs', 'QUICKSTART.md'), front: join(repository, 'README.md'), coming: join(repository, 'docs', 'COMING_FROM.md') };

/** The TypeScript of a document, block by block. */
function snippets(file: string): string[] {
  return [...readFileSync(file, 'utf8').matchAll(/^```ts\n([\s\S]*?)^```$/gm)].map((match) => match[1]!);
}

/** An empty folder in which the package is installed. */
function installed(name: string): string {
  const path = join(root, 'build', name);
  rmSync(path, { recursive: true, force: true });
  mkdirSync(join(path, 'node_modules'), { recursive: true });
  symlinkSync(root, join(path, 'node_modules', 'ckptsidecar'), 'junction');
  writeFileSync(join(path, 'package.json'), '{ "type": "module" }');
  const compilerOptions = { target: 'ES2022', module: 'Node16', strict: true, skipLibCheck: true, types: ['node'], typeRoots: ['../../node_modules/@types'] };
  writeFileSync(join(path, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }));
  return path;
}

function compile(path: string): void {
  const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
  const ran = spawnSync(process.execPath, [tsc, '-p', path], { encoding: 'utf8' });
  assert.equal(ran.status, 0, ran.stdout);
}

test('every example of the documents compiles, runs, and prints what it says', { timeout: 120_000 }, async (t) => {
  const path = installed('snippets');
  const all = Object.entries(sources).flatMap(([name, file]) => snippets(file).map((text, n) => ({ name: `${name}-${n + 1}`, text })));
  assert.ok(all.length > 8, `only ${all.length} examples were found`);
  for (const { name, text } of all) writeFileSync(join(path, `${name}.ts`), text);
  compile(path);
  const world = await World.start();
  const env = { ...world.env, PATH: `${dirname(bin)}:${process.env['PATH']}` };
  for (const { name, text } of all) {
    await t.test(name, () => {
      const ran = spawnSync(process.execPath, [join(path, `${name}.js`)], { env, encoding: 'utf8', timeout: 60_000 });
      assert.equal(ran.status, 0, ran.stderr);
      const said = [...text.matchAll(/\/\/ prints: (.*)$/gm)].map((match) => match[1]!.trimEnd());
      assert.deepEqual(ran.stdout.split('\n').slice(0, -1), said);
    });
  }
  assert.equal(world.spooled().length, 1, 'of the one example without a daemon');
});

test('the loop of the quickstart goes on after kill -9', { timeout: 120_000 }, async () => {
  const path = installed('quickstart');
  const [, section] = readFileSync(sources.quickstart, 'utf8').split('## TypeScript loop');
  const program = /^Save this as `loop\.mjs`.*\n\n```ts\n([\s\S]*?)^```$/m.exec(section!)![1]!;
  const typed = /^```sh\n(node loop\.mjs[\s\S]*?)^```$/m.exec(section!)![1]!;
  writeFileSync(join(path, 'loop.mjs'), program);
  // In place of the command sleep stands one that waits until the agent has saved something.
  const waits = '#!/bin/sh\nfor i in $(seq 1000); do ckptsidecar show loop-ts >/dev/null 2>&1 && exit; done\n';
  writeFileSync(join(path, 'sleep'), waits, { mode: 0o755 });
  const world = await World.start();
  const env = { ...world.env, PATH: `${path}:${dirname(bin)}:${process.env['PATH']}` };
  const ran = spawnSync('sh', ['-eu'], { cwd: path, env, input: typed, encoding: 'utf8', timeout: 60_000 });
  assert.equal(ran.status, 0, ran.stderr);
  assert.equal(ran.stdout, '285\n');
  const agent = world.client().agent('loop-ts');
  const info = await agent.info();
  assert.equal(info.status, 'completed');
  assert.equal(info.attempt, 2);
  const { checkpoints } = await agent.list();
  assert.equal(checkpoints[0]!.seq, 10, 'each number is saved once');
});

test('the example agent survives being killed', { timeout: 120_000 }, async () => {
  const path = installed('example');
  copyFileSync(join(repository, 'examples', 'typescript', 'worker.ts'), join(path, 'worker.ts'));
  compile(path);
  const world = await World.start();
  const notes = join(world.dir, 'notes');
  const env = { ...world.env, NOTES: notes, PAUSE: '60' };
  let kills = 0;
  for (let tries = 0; tries < 20; tries++) {
    const ran = spawnSync(process.execPath, [join(path, 'worker.js')], { env, encoding: 'utf8', timeout: tries < 3 ? 600 : 60_000, killSignal: 'SIGKILL' });
    if (ran.signal === 'SIGKILL') kills++;
    else if (ran.status === 20) world.run('operation', 'resolve', 'writer', 'publish', 'it_did_not', '--reason', 'the notes were looked at');
    else {
      assert.equal(ran.status, 0, ran.stderr);
      break;
    }
  }
  const info = await world.client().agent('writer').info();
  console.log(`the example agent was killed ${kills} times and finished in attempt ${info.attempt}`);
  assert.ok(kills > 0, 'it was never killed');
  assert.equal(info.status, 'completed');
  assert.equal(new Set(readFileSync(notes, 'utf8').trim().split('\n')).size, 10);
});
