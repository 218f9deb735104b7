import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';

import { child, script, sleep, until, World } from './world.js';

const world = await World.start();
const sidecar = world.client();
const windows = process.platform === 'win32';

async function signalled(name: string, how: string, ...signals: NodeJS.Signals[]): Promise<{ code: number | null; signal: string | null; output: string }> {
  const agent = child('child-signal.js', world.env, name, how);
  await until('it is ready', () => agent.output().includes('ready') || agent.exitCode !== null);
  await sleep(60);
  for (const signal of signals) {
    agent.kill(signal);
    await sleep(20);
  }
  return { ...(await agent.ended), output: agent.output() };
}

test('SIGTERM lets the step finish, saves, ends as interrupted, and the process dies of it', { skip: windows }, async () => {
  const { signal } = await signalled('term', 'step', 'SIGTERM');
  assert.equal(signal, 'SIGTERM');
  const agent = sidecar.agent('term');
  const info = await agent.info();
  assert.deepEqual([info.status, info.error], ['interrupted', 'SIGTERM']);
  const { steps } = JSON.parse(world.run('steps', 'term', '--json')) as { steps: { status: string }[] };
  assert.ok(steps.length > 0 && steps.every((s) => s.status === 'succeeded'));
  const latest = await agent.latest();
  assert.equal(latest?.state.n, steps.length, 'the state knows of every step');
  const run = await agent.start({ signals: [] });
  assert.deepEqual([run.plan?.verdict, run.state, run.plan?.completed_steps], ['resume', { n: steps.length }, []]);
  await run.end();
});

test('SIGINT does it too; work that looks at nothing is given some time', { skip: windows }, async () => {
  assert.equal((await signalled('int', 'step', 'SIGINT')).signal, 'SIGINT');
  assert.equal((await sidecar.agent('int').info()).error, 'SIGINT');
  assert.equal((await signalled('deaf', 'deaf', 'SIGTERM')).signal, 'SIGTERM');
  const info = await sidecar.agent('deaf').info();
  assert.equal(info.status, 'interrupted');
  assert.deepEqual((await sidecar.agent('deaf').latest())?.state, { n: 0 });
  assert.equal((await signalled('twice', 'step', 'SIGTERM', 'SIGTERM')).signal, 'SIGTERM');
  assert.equal((await sidecar.agent('twice').info()).status, 'interrupted');
});

test('work that ends by itself when it is asked to, and an explicit run', { skip: windows }, async () => {
  assert.equal((await signalled('graceful', 'graceful', 'SIGTERM')).signal, 'SIGTERM');
  assert.deepEqual((await sidecar.agent('graceful').latest())?.state, { tidied: true });
  assert.equal((await sidecar.agent('graceful').info()).status, 'interrupted');
  assert.equal((await signalled('explicit', 'explicit', 'SIGTERM')).signal, 'SIGTERM');
  assert.deepEqual((await sidecar.agent('explicit').latest())?.state, { n: 'explicit' });
});

test('where somebody else listens to the signal, the process is his', { skip: windows }, async () => {
  const { code, output } = await signalled('own', 'own', 'SIGTERM');
  assert.equal(code, 7);
  assert.match(output, /interrupted/);
  assert.equal((await sidecar.agent('own').info()).status, 'interrupted');
});

test('timers and idle connections keep no process alive, what is waited for does', async () => {
  const idle = child('child-signal.js', world.env, 'idle', 'idle');
  assert.deepEqual(await idle.ended, { code: 0, signal: null }, idle.output());
  const late = child('child-signal.js', world.env, 'late', 'late');
  assert.deepEqual(await late.ended, { code: 0, signal: null }, late.output());
  assert.match(late.output(), /saved/);
});

test('under exec an agent has its name and run, and a failed one is started again', { skip: windows }, async () => {
  const second = "import { Sidecar } from 'ckptsidecar'; await new Sidecar().agent().start();";
  const code = `
    import { Sidecar } from 'ckptsidecar';
    import { spawnSync } from 'node:child_process';
    await new Sidecar().agent().run(async (run) => {
      const { stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', ${JSON.stringify(second)}], { encoding: 'utf8' });
      if (!stderr.includes('PlanRefused')) throw new Error('a process that the agent started has the run too: ' + stderr);
      console.log(run.agent, run.run, run.plan.verdict, JSON.stringify(run.state ?? null));
      run.state = { tries: (run.state?.tries ?? 0) + 1 };
      if (run.state.tries < 3) throw new Error('again');
      return 'done';
    }, { goal: 'count', progressTimeout: '1h' });`;
  const program = ['sh', '-c', '"$0" "$@"; exit $?', process.execPath, '--input-type=module', '-e', code]; // not the process that exec knows
  const output = execFileSync(process.env['CKPTSIDECAR_BIN']!, ['exec', '--agent', 'sup', '--run', 'r', '--backoff', '10ms', '--', ...program], { env: world.env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  assert.deepEqual(output.trim().split('\n'), ['sup r fresh null', 'sup r resume {"tries":1}', 'sup r resume {"tries":2}'], 'each time with the plan of exec');
  const info = await sidecar.agent('sup').info('r');
  assert.deepEqual([info.status, info.result, info.epoch], ['completed', 'done', 3]);
  assert.deepEqual([info.goal, info.progress_timeout, info.heartbeat_timeout], ['count', '1h', '30s']);
});

test('under exec what names no run is about its run, also after the first run of the process has ended', { skip: windows }, async () => {
  const agent = sidecar.agent('exec-unnamed');
  const main = await agent.save('of main');
  const code = `
    import { Sidecar } from 'ckptsidecar';
    const agent = new Sidecar().agent();
    for (let i = 0; i < 2; i++) await agent.run(async (run) => {
      const { run: saved } = await agent.save(i);
      const { run: restored, state } = await agent.restore();
      console.log(run.run, run.plan.verdict, saved, restored, state, (await agent.restore({ checkpoint: process.argv.at(-1) })).state);
    });
    console.log((await agent.info()).run, (await agent.clear()).run, (await agent.drift()).run);`;
  const program = [process.execPath, '--input-type=module', '-e', code, main.id];
  const output = execFileSync(process.env['CKPTSIDECAR_BIN']!, ['exec', '--agent', 'exec-unnamed', '--run', 'r', '--', ...program], { env: world.env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  assert.deepEqual(output.trim().split('\n'), ['r fresh r r 0 of main', 'r fresh r r 1 of main', 'r r r']);
});

test('under exec a new run begins with the checkpoint that it is forked from, and then goes on from its own', { skip: windows }, async () => {
  const agent = sidecar.agent('exec-fork');
  const base = await agent.save({ n: 41 }, { run: 'trunk', program: { source: 'a;b', executed: 2 } });
  const code = `
    import { Sidecar } from 'ckptsidecar';
    const forkFrom = process.argv.at(-1);
    await new Sidecar().agent().run(async (run) => {
      const { attempt, claimed, program } = run.plan;
      console.log(attempt, claimed, program?.remaining, JSON.stringify(run.state ?? null));
      if (attempt === 1) process.kill(process.pid, 'SIGKILL');
      await run.save({ n: run.state.n + 1 });
      if (attempt === 2) process.kill(process.pid, 'SIGKILL');
    }, { forkFrom });`;
  for (const [run, ...before] of [['direct'], ['shell', 'sh', '-c', '"$0" "$@"; exit $?']] as [string, ...string[]][]) {
    const program = [...before, process.execPath, '--input-type=module', '-e', code, base.id];
    const output = execFileSync(process.env['CKPTSIDECAR_BIN']!, ['exec', '--agent', 'exec-fork', '--run', run, '--heartbeat-timeout', '7m', '--backoff', '10ms', '--', ...program], { env: world.env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    assert.deepEqual(output.trim().split('\n'), ['1 true b {"n":41}', '2 true b {"n":41}', '3 true undefined {"n":42}'], run);
    const info = await agent.info(run);
    assert.deepEqual([info.status, info.forked_from, info.heartbeat_timeout], ['completed', base.id, '7m']);
  }
});

test('worker threads work in one run, each with a client of its own', async () => {
  const agent = sidecar.agent('threads');
  await agent.setPolicy({ routine_keep: 0 });
  await agent.run(async (run) => {
    const shared = run.share();
    Object.assign(process.env, { CKPTSIDECAR_SOCKET: world.socket });
    const answers = await Promise.all(
      [0, 1, 2, 3].map(
        (part) =>
          new Promise<string[]>((done, failed) => {
            const worker = new Worker(script('child-worker.js'), { workerData: { shared, part } });
            worker.once('message', done);
            worker.once('error', failed);
          }),
      ),
    );
    delete process.env['CKPTSIDECAR_SOCKET'];
    for (const [part, done] of answers.entries()) {
      assert.deepEqual(done.filter((_, i) => i % 2 === 0), [0, 1, 2, 3, 4].map((n) => `${part}.${n}`));
    }
    assert.equal(run.signal.aborted, false, 'nobody was fenced');
  });
  const { steps } = JSON.parse(world.run('steps', 'threads', '--json')) as { steps: { key: string; status: string }[] };
  assert.equal(steps.filter((s) => s.key.startsWith('part-') && s.status === 'succeeded').length, 20);
  const orders = new Map<number, number[]>();
  for (const c of (await agent.list({ limit: 1000 })).checkpoints.reverse()) {
    const { part, n } = (await agent.checkpoint(c.id)).state as { part: number; n: number };
    orders.set(part, [...(orders.get(part) ?? []), n]);
  }
  assert.deepEqual([...orders.values()], [0, 1, 2, 3].map(() => [0, 1, 2, 3, 4]), 'each thread in its order');
});

test('the package is there for import and for require, with types', () => {
  const names = `Object.keys(m).sort().join(' ')`;
  const run = (...args: string[]): string => execFileSync(process.execPath, args, { cwd: script('..'), encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();
  const esm = run('--input-type=module', '-e', `import * as m from 'ckptsidecar'; console.log(${names})`);
  const cjs = run('-e', `const m = require('ckptsidecar'); console.log(${names})`);
  assert.match(esm, /\bSidecar\b.*\bwithSnapshots\b/);
  assert.equal(cjs.replace('__esModule ', ''), esm);
});
