import assert from 'node:assert/strict';
import { get, type IncomingMessage } from 'node:http';
import { connect, createServer } from 'node:net';
import { after, test } from 'node:test';

import { type Drift, NotDone, OperationFailed, type Run, type StepContext } from 'ckptsidecar';
import { sleep, until, World } from './world.js';

const world = await World.start();
const sidecar = world.client();

test('a run begins, works, and ends completed with its state and result', async () => {
  const agent = sidecar.agent('works');
  const answer = await agent.run(
    async (run) => {
      assert.equal(run.plan?.verdict, 'fresh');
      assert.deepEqual([run.agent, run.run, run.epoch, run.state], ['works', 'nightly', 1, { n: 0 }]);
      run.state.n = 5;
      return { files: 3, at: new Date(0) };
    },
    { run: 'nightly', initial: { n: 0 }, workflow: 'w1', goal: 'do it', externalSession: 'x-1', labels: { team: 'a' } },
  );
  assert.deepEqual(answer, { files: 3, at: new Date(0) });
  const info = await agent.info('nightly');
  assert.deepEqual([info.status, info.workflow, info.goal, info.external_session, info.labels], ['completed', 'w1', 'do it', 'x-1', { team: 'a' }]);
  assert.deepEqual(info.result, { files: 3, at: { $ckpt: 'datetime', value: '1970-01-01T00:00:00.000+00:00' } });
  assert.deepEqual((await agent.latest({ run: 'nightly' }))?.state, { n: 5 });
});

test('a step is done once, and gives the same again', async () => {
  const agent = sidecar.agent('steps');
  let done = 0;
  const work = async (step: StepContext): Promise<unknown> => {
    step.measure({ inputTokens: 10, outputTokens: 3, costUsd: 0.5, progress: 0.25 });
    return { n: ++done, when: new Date(1000), gone: undefined };
  };
  await agent.run(async (run) => {
    const first = await run.step('read/../ü "1"', work, { name: 'read_file', args: { path: 'a.go' } });
    assert.deepStrictEqual(first, { n: 1, when: new Date(1000) }, 'as a resumed run gets it');
    assert.deepStrictEqual(await run.step('read/../ü "1"', work), first);
    assert.equal(await run.step('nothing', () => undefined), null);
    assert.equal(await run.step('nothing', () => 'not run'), null);
    for (const key of ['.', '..', '%2F']) assert.equal(await run.step(key, () => key), key);
    await assert.rejects(run.step('', () => 1), { code: 'invalid' });
    await assert.rejects(run.step('x'.repeat(513), () => 1), { code: 'invalid' });
    await assert.rejects(run.step('half \ud800', () => 1), { code: 'invalid' });
    assert.equal(await run.step('a function', () => () => 1), null, 'what happened is kept, also without its result');
  });
  assert.equal(done, 1);
  const steps = JSON.parse(world.run('steps', 'steps', '--json')) as { steps: Record<string, unknown>[] };
  const { name, args, status, input_tokens, output_tokens, cost_usd, progress } = steps.steps[0]!;
  assert.deepEqual({ name, args, status, input_tokens, output_tokens, cost_usd, progress }, {
    name: 'read_file', args: { path: 'a.go' }, status: 'succeeded', input_tokens: 10, output_tokens: 3, cost_usd: 0.5, progress: 0.25,
  });
});

test('nothing is done twice while the daemon is away, also what an earlier process has done', async () => {
  const world = await World.start();
  const first = await world.client().agent('a').start();
  await first.step('before', () => ({ n: 12345678901234567890n }));
  await first.step('large', () => 'x'.repeat(5000));
  await first.operation('pay', undefined, () => 'paid');
  await first.save({ at: 1 });
  await first.step('since', () => 'since');
  await first.end('interrupted');
  const run = await world.client({ deadline: 500 }).agent('a').start();
  await world.stop('SIGKILL');
  const twice = (): never => assert.fail('it is done twice');
  assert.deepEqual(await run.step('before', twice), { n: 12345678901234567890n });
  assert.equal(await run.step('since', twice), 'since');
  assert.equal(await run.operation('pay', undefined, twice), 'paid');
  await assert.rejects(run.step('large', twice), { code: 'no_daemon' });
  assert.equal(await run.operation('new', undefined, () => 'new', { offline: 'allow' }), 'new');
  await world.start();
  await run.end();
});

test('a step tells the turn of the model, and whether the answer was no', async () => {
  await sidecar.agent('turns').run(async (run) => {
    const nothing = (answer: unknown): boolean => answer === '' || (answer as { exitCode?: number }).exitCode === 1;
    await run.step('grep 1', () => '', { name: 'grep', turn: 'msg_1', negative: nothing });
    await run.step('grep 2', () => 'a line', { name: 'grep', turn: 'msg_1', negative: nothing });
    await assert.rejects(run.step('diff', () => Promise.reject(Object.assign(new Error('exit 1'), { exitCode: 1 })), { turn: 'msg_2', negative: nothing }));
    await run.step('odd', () => 1, { negative: () => { throw new Error('no idea'); } });
    await assert.rejects(run.step('long', () => 1, { turn: 'x'.repeat(257) }), { code: 'invalid' });
  });
  const { steps } = JSON.parse(world.run('steps', 'turns', '--json')) as { steps: Record<string, unknown>[] };
  const seen = Object.fromEntries(steps.map(({ key, status, turn, outcome }) => [key, [status, turn, outcome]]));
  assert.deepEqual(seen, {
    'grep 1': ['succeeded', 'msg_1', 'negative'],
    'grep 2': ['succeeded', 'msg_1', null],
    diff: ['failed', 'msg_2', 'negative'],
    odd: ['succeeded', null, null],
  });
  assert.ok(world.warnings.some((warning) => warning.includes('no idea')));
});

test('a step that throws is failed, and is done again', async () => {
  const agent = sidecar.agent('fails');
  await agent.run(async (run) => {
    const boom = new Error('boom');
    await assert.rejects(run.step('s', () => Promise.reject(boom)), (error) => error === boom);
    await assert.rejects(run.step('s', () => { throw boom; }), (error) => error === boom);
    assert.equal(await run.step('s', ({ attempt }) => attempt), 3);
  });
});

test('an operation that was not done offers the state from before', async () => {
  const agent = sidecar.agent('operations');
  await agent.run(async (run) => {
    const before = { files: ['a'], at: new Date(5) };
    const cause = new Error('no such remote');
    const failed = await run.operation('git push', before, () => Promise.reject(cause), { notDone: (thrown) => thrown === cause }).catch((error: unknown) => error);
    assert.ok(failed instanceof OperationFailed);
    assert.deepEqual([failed.code, failed.operation, failed.cause, failed.state], ['operation_failed', 'git push', cause, before]);
    assert.equal(failed.checkpoint?.kind, 'pre_operation');
    let pushed = 0;
    const push = (): number => ++pushed;
    assert.equal(await run.operation('git push', before, push, { labels: { risky: 'yes' } }), 1);
    assert.equal(await run.operation('git push', before, push), 1, 'what succeeded is not done again');
    assert.equal(await run.operation('git push', before, push, { key: 'another' }), 2);
    await run.save(before);
    assert.equal(await run.operation('without a state', undefined, () => 'ok'), 'ok');
  });
  const { checkpoints } = await agent.list({ kind: 'pre_operation' });
  assert.deepEqual(checkpoints.map((c) => c.operation), ['without a state'], 'success lets them go, but for the newest of all');
});

/** What the daemon answers without the client. */
async function asked(path: string): Promise<unknown> {
  const answer = await new Promise<IncomingMessage>((answered) => get({ socketPath: world.socket, path }, answered));
  let text = '';
  for await (const part of answer) text += String(part);
  return JSON.parse(text);
}

/** Leaves a scope as `await using` does. */
async function using<T extends AsyncDisposable, R>(resource: T, work: (resource: T) => Promise<R>): Promise<R> {
  try {
    return await work(resource);
  } finally {
    await resource[Symbol.asyncDispose]();
  }
}

test('a run that is left is suspended, and one that was ended stays so', async () => {
  const agent = sidecar.agent('left');
  await using(await agent.start<{ n: number }>({ run: 'r', initial: { n: 0 } }), async (run) => void (run.state.n = 1));
  assert.equal((await agent.info('r')).status, 'suspended');
  const thrown = using(await agent.start<{ n: number }>({ run: 'r' }), async (run) => {
    assert.deepEqual([run.plan!.verdict, run.state], ['resume', { n: 1 }]);
    throw new Error('no');
  });
  await assert.rejects(thrown, /^Error: no$/);
  assert.equal((await agent.info('r')).status, 'suspended');
  await using(await agent.start({ run: 'r' }), async (run) => {
    await using(sidecar.join(run.share()), async (joined) => void (await joined.save({ n: 2 })));
    assert.equal((await agent.info('r')).status, 'running', 'who has joined does not end it');
    await run.end('completed');
  });
  assert.equal((await agent.info('r')).status, 'completed');
});

test('an operation whose beginning was not answered was not done, and nobody is asked about it', async () => {
  const world = await World.start();
  const proxy = await unanswering(world);
  const run = await world.client({ socket: proxy.path, deadline: 1000, timeout: 1000, failOpen: false }).agent('a').start();
  await assert.rejects(run.operation('pay', undefined, () => assert.fail('it was done')), { outcome: 'unknown' });
  proxy.answers = true;
  await run.end('completed');
  assert.match(world.run('operations', 'a'), /^pay .* failed /m);
});

/** A socket before the daemon's that keeps the answers to the beginnings of operations. */
async function unanswering(world: World): Promise<{ path: string; answers: boolean }> {
  const proxy = { path: `${world.socket}-`, answers: false };
  const server = createServer((client) => {
    const daemon = connect(world.socket);
    let kept = false;
    client.on('data', (part) => {
      const request = String(part);
      kept ||= !proxy.answers && request.includes('/operations HTTP');
      daemon.write(part);
    });
    daemon.on('data', (part) => {
      if (!kept) client.write(part);
    });
    daemon.on('close', () => client.destroy());
    for (const socket of [client, daemon]) socket.on('error', () => undefined);
  });
  after(() => void server.close());
  await new Promise<void>((ready) => server.listen(proxy.path, ready));
  return proxy;
}

test('of an operation that is left without an end nobody knows whether it took effect', async () => {
  const agent = sidecar.agent('left-operations');
  await using(await agent.start({ initial: { n: 0 } }), async (run) => {
    const status = async (key: string): Promise<string> => {
      const { operations } = (await asked(`/v1/agents/left-operations/runs/${run.run}/operations`)) as { operations: { key: string; status: string }[] };
      return operations.find((operation) => operation.key === key)!.status;
    };
    const done = await using(await run.beginOperation<string>('deploy', { n: 1 }), (operation) => operation.succeed('ok'));
    assert.equal(done, 'ok');
    await using(await run.beginOperation<string>('deploy', { n: 1 }), async (again) => {
      assert.deepEqual([again.replayed, again.result], [true, 'ok']);
      await assert.rejects(again.succeed('twice'), { code: 'conflict' });
    });
    assert.equal(await status('deploy'), 'succeeded');
    const thrown = using(await run.beginOperation('pay', { n: 2 }), async (operation) => {
      assert.equal(operation.context.attempt, 1);
      throw new Error('no money');
    });
    await assert.rejects(thrown, /no money/);
    assert.equal(await status('pay'), 'uncertain');
    await assert.rejects(run.beginOperation('pay', { n: 3 }), { code: 'uncertain_operation' });
    const error = await using(await run.beginOperation('mail', { n: 3 }), (operation) => operation.fail(new Error('still none')));
    assert.ok(error instanceof OperationFailed);
    assert.deepEqual(error.state, { n: 3 });
  });
});

test('events are a journal without gaps', async () => {
  await sidecar.agent('journal').run(async (run) => {
    assert.deepEqual(await run.event('begin'), { first: 1, last: 1 });
    assert.deepEqual(await run.events([{ type: 'a', payload: { x: 1n } }, { type: 'b', payload: 'text ü' }]), { first: 2, last: 3 });
    await assert.rejects(run.event(''), { code: 'invalid' });
  });
  const events = world.run('events', 'list', 'journal', '--json').trim().split('\n').map((line) => JSON.parse(line) as { payload: unknown });
  assert.deepEqual(events.map((e) => e.payload), [{}, { x: { $ckpt: 'int', value: '1' } }, 'text ü']);
});

test('work that throws leaves a way back, and the run can be resumed', async () => {
  const agent = sidecar.agent('throws');
  const boom = new Error('the model is away');
  const work = async (run: Run): Promise<void> => {
    run.state = { n: 1 };
    await run.save();
    await run.step('paid', () => 'receipt');
    run.state.n = 2;
    throw boom;
  };
  await assert.rejects(agent.run(work), (error) => error === boom);
  const info = await agent.info();
  assert.deepEqual([info.status, info.error], ['interrupted', 'the model is away']);
  const back = await agent.latest();
  assert.deepEqual([back?.kind, back?.state, back?.metadata], ['recovery', { n: 2 }, { error: 'the model is away' }]);
  await agent.run(async (run) => {
    assert.equal(run.plan?.verdict, 'resume');
    assert.deepEqual([run.epoch, run.state], [2, { n: 2 }]);
    assert.equal(await run.step('paid', () => assert.fail('it was done before')), 'receipt');
  });
  assert.equal((await agent.info()).status, 'completed');
  await assert.rejects(agent.run(() => Promise.reject(boom), { run: 'other', onError: 'failed' }));
  assert.equal((await agent.info('other')).status, 'failed');
  await agent.run((run) => assert.equal(run.plan?.verdict, 'fresh'));
});

test('a run whose last state is refused ends all the same', async () => {
  const agent = sidecar.agent('refused');
  await agent.setPolicy({ schema: { properties: { n: { type: 'integer' } } } } as never);
  const bad = async (run: Run): Promise<void> => {
    await run.save({ n: 1 });
    run.state.n = 'one';
  };
  const refused = { code: 'schema_mismatch' };
  const failing = badAnd((run) => run.save());
  await assert.rejects(agent.run(failing, { run: 'saves', onError: 'failed' }), refused);
  const boom = new Error('the model is away');
  await assert.rejects(agent.run(badAnd(() => Promise.reject(boom)), { run: 'throws' }), (error) => error === boom);
  await assert.rejects(agent.run(bad, { run: 'returns' }), refused);
  const stopped = await agent.start({ run: 'stops', signals: [] });
  await bad(stopped);
  await stopped.stop('enough');
  const ends = ['saves', 'throws', 'returns', 'stops'].map(async (run) => (await agent.info(run)).status);
  assert.deepEqual(await Promise.all(ends), ['failed', 'interrupted', 'interrupted', 'interrupted']);
  assert.deepEqual((await agent.latest({ run: 'stops' }))?.state, { n: 1 });

  function badAnd(more: (run: Run) => Promise<unknown>): (run: Run) => Promise<void> {
    return async (run) => {
      await bad(run);
      await more(run);
    };
  }
});

test('an explicit run ends as it is told, once', async () => {
  const agent = sidecar.agent('explicit');
  const run = await agent.start({ run: 'r' });
  run.state = 'first';
  await run.end('awaiting_continuation', { continuationPrompt: 'go on at noon' });
  await assert.rejects(run.save('late'), { code: 'conflict' });
  await assert.rejects(run.end(), { code: 'conflict' });
  const again = await agent.start({ run: 'r' });
  assert.deepEqual([again.plan?.continuation_prompt, again.state], ['go on at noon', 'first']);
  await assert.rejects(agent.start({ run: 'r' }), { code: 'conflict', message: /is already running in this process/ });
  await again.end('suspended');
  await assert.rejects(agent.start({ run: 'r2', forkFrom: 'nonsense' }), { code: 'invalid' });
  await (await agent.start({ run: 'r2' })).end();
});

test('a fork begins with the checkpoint of another run', async () => {
  const agent = sidecar.agent('forks');
  const saved = await agent.save({ n: 7 }, { run: 'trunk' });
  await agent.run((run) => assert.deepEqual([run.plan?.verdict, run.state], ['fresh', { n: 7 }]), { run: 'branch', forkFrom: saved.id, parentRun: 'trunk' });
  assert.equal((await agent.info('branch')).forked_from, saved.id);
});

test('an owner that is alive is not taken over unless by force; then it is fenced at once', async () => {
  const agent = sidecar.agent('fenced');
  const sleeper = (await import('node:child_process')).spawn('sleep', ['60']);
  try {
    world.run('run', 'start', 'fenced', '--pid', String(sleeper.pid));
    await assert.rejects(agent.start(), (error: { code: string; plan: { reasons: string[] }; message: string }) => {
      assert.equal(error.code, 'unsafe');
      assert.match(error.message, /is alive/);
      return true;
    });
  } finally {
    sleeper.kill();
  }
  const old = await agent.start({ force: true, heartbeatEvery: 20, autosave: 20 });
  old.state = { mine: 1 };
  await old.save();
  const other = world.client();
  const fresh = await other.agent('fenced').start({ force: true, signals: [] });
  const spooled = world.spooled().length;
  await until('the heartbeat tells of it', () => old.signal.aborted);
  for (const write of [old.save({ mine: 2 }), old.step('s', () => 1), old.operation('o', 1, () => 1), old.event('e'), old.end()]) {
    await assert.rejects(write, { code: 'fenced' });
  }
  assert.equal((old.signal.reason as { code: string }).code, 'fenced');
  assert.equal(world.spooled().length, spooled, 'nothing of it is spooled');
  await fresh.save({ mine: 3 });
  await fresh.end();
  assert.deepEqual((await agent.latest())?.state, { mine: 3 });
});

test('work whose run is taken over gets the error of it, and saves nothing more', async () => {
  const agent = sidecar.agent('taken');
  const other = world.client().agent('taken');
  await assert.rejects(
    agent.run(async (run) => {
      run.state = { a: 1 };
      await run.save();
      await (await other.start({ force: true, signals: [] })).end();
      await run.save({ a: 2 });
    }),
    { code: 'fenced' },
  );
  assert.deepEqual((await agent.latest())?.state, { a: 1 });
});

test('a run that does not beat is timed out, one that does is not', async () => {
  const agent = sidecar.agent('beats');
  const quiet = await agent.start({ run: 'quiet', heartbeatTimeout: 300, heartbeatEvery: '1h', signals: [] });
  const loud = await agent.start({ run: 'loud', heartbeatTimeout: 300, heartbeatEvery: 50 });
  loud.progress(0.5);
  await until('it is timed out', async () => (await agent.info('quiet')).status === 'timed_out');
  const info = await agent.info('loud');
  assert.deepEqual([info.status, info.progress], ['starting', 0.5]);
  await quiet.end('suspended');
  await loud.end();
});

test('autosave saves what has changed, and only that', async () => {
  const agent = sidecar.agent('autosaves');
  await agent.setPolicy({ routine_keep: 0 });
  const run = await agent.start({ initial: { n: 0 }, autosave: 20 });
  await until('the first', async () => (await agent.list()).checkpoints.length === 1);
  await sleep(100);
  assert.equal((await agent.list()).checkpoints.length, 1, 'nothing has changed');
  run.state.n = 1;
  await until('the second', async () => (await agent.list()).checkpoints.length === 2);
  run.state.n = 2;
  await run.end();
  assert.deepEqual((await agent.list()).checkpoints.length, 3, 'the end saves the last');
  const other = await agent.start({ run: 'own' });
  let value = 'a';
  const autosave = other.autosave('1h', () => ({ value }));
  await autosave.now();
  await autosave.now();
  value = 'b';
  await autosave.stop();
  assert.deepEqual((await agent.list({ run: 'own' })).checkpoints.length, 2);
  await other.end();
  await autosave.stop();
});

test('an agent that can find out itself what became of an operation is asked', async () => {
  const agent = sidecar.agent('resolves');
  const first = await agent.start({ signals: [] });
  for (const name of ['a', 'b']) void first.operation(name, { name }, () => new Promise(() => undefined));
  await until('both are open', async () => (JSON.parse(world.run('operations', 'resolves', '--json')) as { operations: unknown[] }).operations.length === 2);
  await assert.rejects(agent.start({ force: true }), { code: 'uncertain_operation', message: /\nckptsidecar operation resolve resolves [ab] it_did\|it_did_not\|repeat$/ });
  const asked: string[] = [];
  await assert.rejects(agent.run(() => assert.fail(), { force: true, resolve: (o) => (asked.push(o.key), o.key === 'a' ? new NotDone() : undefined) }), { code: 'uncertain_operation' });
  const answer = await agent.run((run) => Promise.all([run.operation('a', 1, () => 'again'), run.operation('b', 2, () => assert.fail())]), {
    force: true,
    resolve: async (o) => (asked.push(o.key), { status: 'succeeded', result: 'it was there', reason: 'the log has it' }),
  });
  assert.deepEqual(answer, ['again', 'it was there']);
  assert.deepEqual(asked, ['a', 'b', 'b']);
});

test('stop lets a step finish, saves, and ends as interrupted', async () => {
  const agent = sidecar.agent('stops');
  let finish: (() => void) | undefined;
  const seen: string[] = [];
  const going = agent.run(
    async (run) => {
      run.state = [] as string[];
      const stopped = (async () => {
        await until('the step goes on', () => finish !== undefined);
        const stop = run.stop('enough');
        assert.equal(run.signal.aborted, true);
        finish!();
        return stop;
      })();
      for (let n = 0; ; n++) {
        run.state.push(await run.step(`s${n}`, () => (n < 1 ? 'at once' : new Promise<string>((done) => (finish = () => done('finished'))))));
        seen.push(...run.state);
        void stopped;
      }
    },
    { stopWithin: 5000 },
  );
  await assert.rejects(going, { code: 'interrupted' });
  const info = await agent.info();
  assert.deepEqual([info.status, info.error], ['interrupted', 'enough']);
  assert.deepEqual((await agent.latest())?.state, ['at once', 'finished']);
  const run = await agent.start();
  assert.deepEqual([run.plan?.verdict, run.plan?.interrupted_steps], ['resume', []]);
  await run.end();
});

test('a loop hears that it drifts, and stops; the next start goes on from the newest clean checkpoint', async () => {
  const agent = sidecar.agent('drifts');
  const options = { initial: { turns: 0 } };
  let turns = 0;
  let clean: string | null = null;
  await assert.rejects(
    agent.run(async (run) => {
      assert.equal(run.drift().verdict, 'none');
      while (turns < 50) {
        await run.step(`search ${turns}`, () => 'nothing new', { name: 'search', args: { q: 'the same' } });
        await run.save({ turns: ++turns });
        clean = run.drift().clean;
        if (run.drift().critical) throw new Error(`it drifts: ${run.drift().advice}`);
      }
    }, options),
    /^Error: it drifts: \w/,
  );
  assert.ok(turns < 50);
  await agent.run((run) => {
    assert.deepEqual([run.plan?.verdict, run.plan?.checkpoint?.id], ['repair', clean]);
    assert.ok(run.state.turns < turns);
  }, options);
});

test('findings are reported and dismissed, and what others find comes with the heartbeat', async () => {
  const told: Drift[] = [];
  const agent = sidecar.agent('reports');
  await agent.run(
    async (run) => {
      const clean = await run.save({ n: 1 });
      const found = await run.report({ rule: 'wrong-file', message: 'not its file', severity: 'critical', evidence: { file: 'x' } });
      assert.equal(run.drift().clean, clean.id);
      assert.deepEqual(told.map((drift) => drift.verdict), ['critical']);
      assert.equal(told[0]!.findings[0]!.rule, 'wrong-file');
      assert.equal((await agent.drift()).verdict, 'critical');
      const dismissed = await run.dismiss(found.id, 'it was its own');
      assert.ok(dismissed.dismissed_at);
      assert.equal(run.drift().critical, false);
      await sidecar.join(run.share()).report({ rule: 'seen', message: 'm', severity: 'critical' });
      await until('the heartbeat brings it', () => run.drift().critical);
    },
    { heartbeatEvery: 20, onDrift: (drift) => told.push(drift) },
  );
  await sidecar.dismiss((await agent.drift()).findings[0]!.id);
});

test('an agent is exported, erased and imported', async () => {
  const agent = sidecar.agent('moves');
  await agent.run((run) => run.step('once', () => ({ done: true })), { run: 'r1', initial: { n: 1 } });
  await agent.save({ n: 2 }, { run: 'r2' });
  const all = async () => (await agent.list()).checkpoints.map((c) => [c.run, c.seq, c.kind, c.sha256, c.created_at]).sort();
  const before = await all();
  const file = await agent.export();
  assert.equal(Buffer.from(file).subarray(0, 15).toString(), 'SQLite format 3');
  assert.equal((await agent.erase()).runs, 2);
  assert.equal((await agent.list()).checkpoints.length, 0);
  const report = await sidecar.import(file);
  assert.deepEqual([report.runs, report.imported, report.rows], [2, 2, { step: 1 }]);
  assert.deepEqual(await all(), before);
  assert.equal((await agent.info('r1')).status, 'completed');
  assert.equal((await sidecar.import(await agent.export({ run: 'r2' }), { agent: 'moved' })).runs, 1);
  const both = await sidecar.export(['moves', 'moved']);
  await sidecar.agent('moved').erase();
  await agent.erase();
  assert.deepEqual((await sidecar.import(both)).runs, 3);
  assert.deepEqual(await all(), before);
});

test('a run is forked, cleared and deleted', async () => {
  const agent = sidecar.agent('tidy');
  const saved = await agent.save({ n: 1, plan: ['a'] }, { run: 'r' });
  await agent.fork(saved.id, { n: 1, plan: ['b'] }, { run: 'other' });
  const [first] = (await agent.list({ run: 'other' })).checkpoints;
  assert.deepEqual([first!.parent, first!.seq], [saved.id, 1]);
  await assert.rejects(agent.fork(saved.id, {}, { run: 'other' }), { code: 'conflict' });
  await agent.run(
    async (run) => {
      assert.deepEqual(run.state, { n: 1, plan: ['b'] });
      await assert.rejects(agent.deleteRun('other'), { code: 'conflict' });
    },
    { run: 'other' },
  );
  assert.equal((await agent.info('other')).forked_from, saved.id);
  assert.equal((await agent.clear('other')).removed, 1);
  assert.equal((await agent.deleteRun('other')).run, 'other');
  assert.deepEqual((await agent.runs()).runs.map((run) => run.run), ['r']);
});

test('a policy for all agents counts where an agent sets nothing itself', async () => {
  const agent = sidecar.agent('governed');
  await agent.setPolicy({ routine_keep: 7 });
  const all = await sidecar.setPolicyForAll({ routine_keep: 9, recovery_keep: '2d' });
  assert.deepEqual(all.owner, { recovery_keep: '2d', routine_keep: 9 });
  const layers = await agent.policyLayers();
  assert.deepEqual([layers.policy.routine_keep, layers.from['routine_keep'], layers.policy.recovery_keep, layers.from['recovery_keep']], [7, 'agent', '2d', 'owner']);
  assert.equal((await agent.setPolicy({ routine_keep: undefined })).routine_keep, 9);
  await sidecar.setPolicyForAll({ routine_keep: undefined, recovery_keep: undefined });
  assert.equal((await agent.policy()).routine_keep, 3);
});

test('runs are found by what is known of them', async () => {
  const agent = sidecar.agent('found');
  for (const run of ['a', 'b', 'c']) await agent.run(async () => undefined, { run, workflow: `w-${run}`, goal: `Deploy part ${run}`, labels: { part: run } });
  const names = async (filter: Parameters<typeof agent.runs>[0]) => (await agent.runs(filter)).runs.map((run) => run.run);
  assert.deepEqual(await names({ workflow: 'w-b' }), ['b']);
  assert.deepEqual(await names({ labels: { part: 'c' } }), ['c']);
  assert.deepEqual(await names({ goal: 'deplo* a' }), ['a']);
  assert.deepEqual(await names({ sort: 'started', status: 'completed', since: '2026-01-01T00:00:00Z' }), ['c', 'b', 'a']);
  assert.equal((await sidecar.runs({ agent: 'found', severity: 'critical' })).runs.length, 0);
  await agent.run((run) => run.save({ n: 2 }), { run: 'a', goal: 'Deploy part a again' });
  assert.deepEqual(await names({ goal: 'part a' }), ['a']);
  assert.deepEqual((await names({ goal: 'part a', lives: true })).sort(), ['a', 'a~1']);
  const { runs } = await sidecar.runs({ agent: 'found', lives: true, labels: { part: 'a' } });
  assert.deepEqual(runs.map((run) => [run.run, run.life, run.goal]), [['a', 2, 'Deploy part a again'], ['a~1', 1, 'Deploy part a']]);
  assert.equal((await agent.info('a~1')).goal, 'Deploy part a');
  assert.equal((await agent.deleteRun('a~1')).run, 'a~1');
  await assert.rejects(agent.info('a~0'), /is not valid/);
});
