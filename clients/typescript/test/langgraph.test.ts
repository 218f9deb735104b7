import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { Annotation, Command, END, interrupt, MemorySaver, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph';
import { emptyCheckpoint, uuid6, type SerializerProtocol } from '@langchain/langgraph-checkpoint';

import { isSidecarError } from 'ckptsidecar';
import { SidecarSaver, type SidecarSaverOptions } from 'ckptsidecar/langgraph';

import { child, sleep, until, World } from './world.js';

process.env['LANGSMITH_TRACING'] = 'false';

function saverOf(t: TestContext, world: World, options: SidecarSaverOptions = {}): SidecarSaver {
  const saver = new SidecarSaver({ socket: world.socket, spool: { folder: world.spool }, ...options });
  t.after(() => saver.close());
  return saver;
}

const meta = { source: 'loop', step: 0, parents: {} } as const;

function checkpoint(values: Record<string, unknown>, versions: Record<string, number>): ReturnType<typeof emptyCheckpoint> {
  return { ...emptyCheckpoint(), id: uuid6(1), channel_values: values, channel_versions: versions };
}

const thread = (id: string): { configurable: Record<string, string> } => ({ configurable: { thread_id: id, checkpoint_ns: '' } });

const nodes = ['a', 'b1', 'b2', 'b3', 'q1:yes', 'q2:yes', 's1', 's2', 'z'];
const inState = ['a', 'b1', 'b2', 'b3', 'q1:yes', 'q2:yes', 's1 of sub', 's2 of sub', 'z'];

test('a graph that is killed 20 times, and its daemon too, loses and repeats nothing', { timeout: 280_000 }, async (t) => {
  const world = await World.start();
  const effects = join(world.dir, 'effects');
  const [threads, kills] = [4, 20];
  const lines = (): string[] => {
    try {
      return readFileSync(effects, 'utf8').trimEnd().split('\n');
    } catch {
      return [];
    }
  };
  const start = (): ReturnType<typeof child> => child('child-graph.js', { ...world.env, LANGSMITH_TRACING: 'false' }, effects, String(threads));
  for (let kill = 0; kill < kills; kill++) {
    const running = start();
    const from = lines().length;
    await until(`life ${kill}: ${running.output()}`, () => lines().length > from + (kill % 3) || running.exitCode !== null, 60_000);
    if (kill % 4 === 1) {
      await world.stop('SIGKILL');
      await world.start();
      await until(`life ${kill} after its daemon died: ${running.output()}`, () => lines().length > from + 3 || running.exitCode !== null, 60_000);
    }
    await sleep(Math.random() * 15);
    running.kill('SIGKILL');
    assert.equal((await running.ended).signal, 'SIGKILL', `it was done before it was killed ${kill} times`);
  }
  const last = start();
  assert.equal((await last.ended).code, 0, last.output());

  const seen = lines();
  let again = 0;
  for (let n = 0; n < threads; n++) {
    const tuple = await saverOf(t, world).getTuple({ configurable: { thread_id: `t${n}` } });
    assert.deepEqual([...(tuple!.checkpoint.channel_values['done'] as string[])].sort(), inState);
    for (const node of nodes) {
      const effect = seen.flatMap((line, at) => (line === `effect t${n} ${node}` ? [at] : []));
      const kept = seen.indexOf(`kept t${n} ${node}`);
      assert.ok(effect.length > 0, `${node} of t${n} was never done`);
      assert.ok(kept < 0 || effect.every((at) => at < kept), `${node} of t${n} was done again after its writes were kept:\n${seen.filter((line) => line.includes(` t${n} `)).join('\n')}`);
      again += effect.length - 1;
    }
  }
  t.diagnostic(`${kills} kills of the graph, ${kills / 4} of the daemon: ${threads * nodes.length} effects, ${again} done again because they were not kept yet`);
});

test('writes are made in the order of their calls, however long one takes to serialize', async (t) => {
  const world = await World.start();
  const plain = new MemorySaver().serde;
  const serde = {
    dumpsTyped: async (value: unknown): Promise<[string, Uint8Array]> => {
      if (value === 'slow') await sleep(100);
      if (value === 'bad') throw new Error('no');
      return plain.dumpsTyped(value);
    },
    loadsTyped: (type: string, data: string | Uint8Array): Promise<unknown> => plain.loadsTyped(type, data),
  };
  const saver = saverOf(t, world, { serde });
  const done: string[] = [];
  const made = checkpoint({ a: 'slow' }, { a: 1 });
  const at = { configurable: { ...thread('order').configurable, checkpoint_id: made.id } };
  await Promise.all([
    saver.put(thread('order'), made, meta, { a: 1 }).then(() => done.push('put')),
    saver.putWrites(at, [['a', 'quick']], 'task').then(() => done.push('writes')),
    assert.rejects(saver.putWrites(at, [['a', 'bad']], 'other'), /no/),
    saver.putWrites(at, [['a', 'last']], 'task2').then(() => done.push('more writes')),
  ]);
  assert.deepEqual(done, ['put', 'writes', 'more writes']);
  assert.equal((await saver.getTuple(at))!.pendingWrites!.length, 2);
});

const Log = Annotation.Root({ log: Annotation<string[]>({ reducer: (a, b) => a.concat(b), default: () => [] }) });

/** A graph whose nodes say their names. */
function chain(saver: SidecarSaver | MemorySaver) {
  return new StateGraph(Log)
    .addNode('one', () => ({ log: ['one'] }))
    .addNode('two', () => ({ log: ['two'] }))
    .addNode('three', ({ log }) => ({ log: [`three after ${log.length}`] }))
    .addEdge(START, 'one')
    .addEdge('one', 'two')
    .addEdge('two', 'three')
    .addEdge('three', END)
    .compile({ checkpointer: saver });
}

test('time travel, and two forks from one checkpoint', async (t) => {
  const graph = chain(saverOf(t, await World.start()));
  const config = thread('travel');
  assert.deepEqual((await graph.invoke({ log: ['begin'] }, config)).log, ['begin', 'one', 'two', 'three after 3']);
  const history = [];
  for await (const state of graph.getStateHistory(config)) history.push(state);
  assert.deepEqual(history.map((state) => state.next), [[], ['three'], ['two'], ['one'], ['__start__']]);
  const before = history[2]!;
  assert.deepEqual(before.values.log, ['begin', 'one']);

  // From there again: history is added to, and not changed.
  assert.deepEqual((await graph.invoke(null, before.config)).log, ['begin', 'one', 'two', 'three after 3']);

  const left = await graph.updateState(before.config, { log: ['left'] }, 'one');
  const right = await graph.updateState(before.config, { log: ['right'] }, 'one');
  assert.deepEqual((await graph.invoke(null, left)).log, ['begin', 'one', 'left', 'two', 'three after 4']);
  assert.deepEqual((await graph.invoke(null, right)).log, ['begin', 'one', 'right', 'two', 'three after 4']);
  for (const [fork, name] of [[left, 'left'], [right, 'right']] as const) {
    const state = await graph.getState(fork);
    assert.deepEqual(state.values.log, ['begin', 'one', name]);
    assert.equal(state.parentConfig!.configurable!['checkpoint_id'], before.config.configurable!['checkpoint_id']);
  }
  assert.deepEqual((await graph.getState(before.config)).values.log, ['begin', 'one']);
});

/** Forks the first checkpoint of a thread twice, and answers what each fork has. */
async function forkOfTheFirst(checkpointer: SidecarSaver | MemorySaver): Promise<{ values: Record<string, unknown>; end: unknown }[]> {
  const graph = chain(checkpointer);
  await graph.invoke({ log: ['begin'] }, thread('copy'));
  const history = [];
  for await (const state of graph.getStateHistory(thread('copy'))) history.push(state);
  const first = history.at(-1)!;
  assert.equal(first.metadata!.step, -1);
  const seen = [];
  for (let n = 0; n < 2; n++) {
    const fork = await graph.updateState(first.config, null, '__copy__');
    const { checkpoint, parentConfig } = (await checkpointer.getTuple(fork))!;
    const { next } = await graph.getState(fork);
    seen.push({ values: checkpoint.channel_values, parent: parentConfig, next, end: await graph.invoke(null, fork) });
  }
  return seen;
}

test('a fork of the first checkpoint has the input', async (t) => {
  const ours = await forkOfTheFirst(saverOf(t, await World.start()));
  assert.deepEqual(ours[0]!.values['__start__'], { log: ['begin'] });
  assert.deepEqual(ours[0]!.end, { log: ['begin', 'one', 'two', 'three after 3'] });
  assert.deepEqual(ours, await forkOfTheFirst(new MemorySaver()));
});

test('what LangGraph sees is what its own memory saver gives', async (t) => {
  const ours = chain(saverOf(t, await World.start()));
  const theirs = chain(new MemorySaver());
  const shown = [];
  for (const graph of [ours, theirs]) {
    await graph.invoke({ log: ['begin'] }, thread('same'));
    await graph.invoke({ log: ['again'] }, thread('same'));
    const states = [];
    for await (const state of graph.getStateHistory(thread('same'))) states.push({ values: state.values, next: state.next, metadata: state.metadata, tasks: state.tasks.map(({ id: _, ...task }) => task) });
    shown.push(states);
  }
  assert.deepEqual(shown[0], shown[1]);
});

/** Answers questions of two nodes at once, some of them together, and says what was open each time. */
async function answering(saver: SidecarSaver | MemorySaver): Promise<{ log: string[]; open: string[][] }> {
  const asking = (name: string) => () => ({ log: [`${name}: ${interrupt<string, string>(`${name}?`)} ${interrupt<string, string>(`${name} again?`)}`] });
  const graph = new StateGraph(Log)
    .addNode('left', asking('left'))
    .addNode('right', asking('right'))
    .addEdge(START, 'left')
    .addEdge(START, 'right')
    .compile({ checkpointer: saver });
  const config = thread('ask');
  const open: string[][] = [];
  let { log } = await graph.invoke({ log: [] }, config);
  for (const answers of [{ 'left?': 'L1' }, { 'left again?': 'L2', 'right?': 'R1' }, { 'right again?': 'R2' }] as Record<string, string>[]) {
    const asked = (await graph.getState(config)).tasks.flatMap((task) => task.interrupts);
    open.push(asked.map(({ value }) => String(value)));
    const resume = Object.fromEntries(asked.filter(({ value }) => String(value) in answers).map(({ id, value }) => [id!, answers[String(value)]]));
    ({ log } = await graph.invoke(new Command({ resume }), config));
  }
  return { log, open };
}

test('several interrupts are answered one by one and together', async (t) => {
  const ours = await answering(saverOf(t, await World.start()));
  assert.deepEqual(ours.log, ['left: L1 L2', 'right: R1 R2']);
  assert.deepEqual(ours.open.slice(0, 2), [['left?', 'right?'], ['left again?', 'right?']]);
  assert.deepEqual(ours, await answering(new MemorySaver()));
});

test('only what has changed is sent, and what the parent lacks is sent again', async (t) => {
  const world = await World.start();
  const saver = saverOf(t, world);
  const big = 'x'.repeat(100_000);
  const first = await saver.put(thread('1'), checkpoint({ big, n: 1 }, { big: 1, n: 1 }), meta, { big: 1, n: 1 });
  const second = await saver.put(first, checkpoint({ big: 'not looked at', n: 2 }, { big: 1, n: 2 }), meta, { n: 2 });
  assert.deepEqual((await saver.getTuple(second))!.checkpoint.channel_values, { big, n: 2 });

  // A thread that was shortened behind the saver's back.
  await saver.prune(['1']);
  const third = await saver.put(first, checkpoint({ big: 'sent anew', n: 3, free: true }, { big: 1, n: 3 }), meta, { n: 3 });
  assert.deepEqual((await saver.getTuple(third))!.checkpoint.channel_values, { big: 'sent anew', n: 3, free: true });
  assert.equal((await saver.getTuple(first)), undefined);

  await saver.copyThread('1', '2');
  await saver.deleteThread('1');
  const copies = [];
  for await (const tuple of saver.list({ configurable: {} })) copies.push(tuple.config.configurable!['thread_id']);
  assert.deepEqual(copies, ['2', '2']);
  await saver.deleteForRuns(['nobody']);
  assert.match(world.run('list', 'langgraph'), /2-[0-9a-f]{16}/);
});

/** How many bytes the daemon sends while something is done. */
async function received(saver: SidecarSaver, work: () => Promise<unknown>): Promise<number> {
  const { delivery } = saver as unknown as { delivery: { call: (ask: unknown) => Promise<{ body: Buffer }> } };
  const call = delivery.call.bind(delivery);
  let bytes = 0;
  delivery.call = async (ask) => {
    const answer = await call(ask);
    bytes += answer.body.length;
    return answer;
  };
  try {
    await work();
  } finally {
    delivery.call = call;
  }
  return bytes;
}

test('getTuple is sent only what the saver has not', async (t) => {
  const world = await World.start();
  const saver = saverOf(t, world);
  const other = saverOf(t, world);
  const [still, raw] = ['x'.repeat(50_000), new Uint8Array(1000).fill(7)];
  let config = await saver.put(thread('1'), checkpoint({ still, raw, n: 1 }, { still: 1, raw: 1, n: 1 }), meta, { still: 1, raw: 1, n: 1 });
  raw.fill(8); // the caller's to change
  const get = async (of: SidecarSaver, at = thread('1')) => (await of.getTuple(at))!.checkpoint.channel_values;
  const first = { still, raw: Buffer.alloc(1000, 7), n: 1 };
  for (let n = 0; n < 2; n++) {
    assert.ok((await received(saver, async () => {
      const found = await get(saver);
      assert.deepEqual(found, first);
      (found['raw'] as Uint8Array).fill(9); // and the reader's
    })) < 5_000);
  }
  assert.ok((await received(other, async () => assert.deepEqual(await get(other), first))) > 50_000);
  assert.ok((await received(other, async () => assert.deepEqual(await get(other), first))) < 5_000);

  config = await saver.put(config, checkpoint({ still: '?', raw: '?', n: 2 }, { still: 1, raw: 1, n: 2 }), meta, { n: 2 });
  assert.ok((await received(saver, async () => assert.deepEqual(await get(saver), { ...first, n: 2 }))) < 5_000);
  const fork = 'y'.repeat(50_000); // of the same version
  await other.put(config, checkpoint({ still: fork, n: 3 }, { still: 1, n: 3 }), meta, { still: 1, n: 3 });
  assert.ok((await received(saver, async () => assert.deepEqual(await get(saver), { still: fork, n: 3 }))) > 50_000);
  assert.deepEqual(await get(saver, config as ReturnType<typeof thread>), { ...first, n: 2 });
  assert.ok((await received(saver, async () => assert.deepEqual(await get(saver), { still: fork, n: 3 }))) < 5_000);

  await world.stop('SIGKILL'); // another daemon knows no tags of the one before
  await world.start();
  assert.ok((await received(saver, async () => assert.deepEqual(await get(saver), { still: fork, n: 3 }))) > 50_000);
  assert.ok((await received(saver, async () => assert.deepEqual(await get(saver), { still: fork, n: 3 }))) < 5_000);
});

test('a put without new versions puts all values', async (t) => {
  const saver = saverOf(t, await World.start());
  const put = saver.put.bind(saver) as (...given: unknown[]) => ReturnType<SidecarSaver['put']>;
  const config = await put(thread('1'), checkpoint({ a: 1, b: { c: 2 } }, { a: 1, b: 1 }), meta);
  assert.deepEqual((await saver.getTuple(config))!.checkpoint.channel_values, { a: 1, b: { c: 2 } });
  const next = await put(config, checkpoint({ a: 'new', b: 'new' }, { a: 1, b: 1 }), meta, undefined);
  assert.deepEqual((await saver.getTuple(next))!.checkpoint.channel_values, { a: 'new', b: 'new' });
});

test('values are whatever a serializer makes of them', async (t) => {
  const world = await World.start();
  const upside: SerializerProtocol = {
    dumpsTyped: (value) => Promise.resolve(['upside-down', Buffer.from(JSON.stringify(value) ?? 'undefined').reverse()]),
    loadsTyped: (type, data) => {
      assert.equal(type, 'upside-down');
      return Promise.resolve(JSON.parse(Buffer.from(data as Uint8Array).reverse().toString('utf8')));
    },
  };
  const saver = saverOf(t, world, { serde: upside, agent: 'other' });
  const config = await saver.put(thread('1'), checkpoint({ a: { b: 'ü' } }, { a: 1 }), { ...meta, user: new Map([['k', 1]]) } as never, { a: 1 });
  await saver.putWrites(config, [['a', [1]]], 'task');
  const tuple = (await saver.getTuple(config))!;
  assert.deepEqual(tuple.checkpoint.channel_values, { a: { b: 'ü' } });
  assert.deepEqual(tuple.pendingWrites, [['task', 'a', [1]]]);
  assert.deepEqual((tuple.metadata as unknown as { user: unknown }).user, new Map([['k', 1]]));
  const found = [];
  for await (const one of saver.list({ configurable: {} }, { filter: { user: new Map([['k', 1]]), none: undefined } })) found.push(one);
  assert.equal(found.length, 1);
});

test('names may be any text', async (t) => {
  const saver = saverOf(t, await World.start());
  for (const id of ['..', 'a/b?c#d', 'ü \u{1F600}', "'; DROP TABLE runs; --", '__proto__']) {
    const config = await saver.put({ configurable: { thread_id: id, checkpoint_ns: `${id}|x:1` } }, checkpoint({ [id]: id }, { [id]: 1 }), meta, { [id]: 1 });
    const tuple = (await saver.getTuple(config))!;
    assert.deepEqual(Object.entries(tuple.checkpoint.channel_values), [[id, id]]);
    assert.deepEqual(tuple.config, config);
  }
});

test('a put waits for a daemon that was killed, as long as it was told to', async (t) => {
  const world = await World.start();
  const saver = saverOf(t, world, { deadline: 60_000 });
  const first = await saver.put(thread('1'), checkpoint({ n: 1 }, { n: 1 }), meta, { n: 1 });
  await world.stop('SIGKILL');
  const waiting = saver.put(first, checkpoint({ n: 2 }, { n: 2 }), meta, { n: 2 });
  await sleep(200);
  await world.start();
  const second = await waiting;
  assert.deepEqual((await saver.getTuple(thread('1')))!.config, second);
  assert.equal((await saver.getTuple(first))!.checkpoint.channel_values['n'], 1);

  await world.stop('SIGKILL');
  const hasty = saverOf(t, world, { deadline: 100 });
  await assert.rejects(hasty.put(first, checkpoint({}, {}), meta, {}), (error) => isSidecarError(error, 'no_daemon'));
  assert.deepEqual(world.spooled(), []); // a checkpointer never says that something is kept which is not
});

test('CommonJS has it as well', () => {
  const { SidecarSaver: required } = createRequire(import.meta.url)('ckptsidecar/langgraph') as { SidecarSaver: typeof SidecarSaver };
  assert.equal(new required({ socket: '/nobody' }).agent, 'langgraph');
  assert.throws(() => new required({ agent: 'no agent' }), (error) => isSidecarError(error, 'invalid'));
});

test('answers of tools are steps with the turn of the model, also in a process that resumes the thread', async (t) => {
  const world = await World.start();
  const record = JSON.parse(readFileSync(new URL('../../recorded/langgraph-tools.json', import.meta.url), 'utf8')) as Recorded;
  const calls = record.calls.map((call) => new AIMessage({ content: '', ...call }));
  const answers = record.answers.map((answer) => new ToolMessage(answer));
  const build = (saver: SidecarSaver) =>
    new StateGraph(MessagesAnnotation)
      .addNode('model', ({ messages }) => ({ messages: [calls[messages.filter((m) => m.getType() === 'ai').length]!] }))
      .addNode('tools', ({ messages }) => {
        const { tool_calls } = messages.at(-1) as AIMessage;
        return { messages: answers.filter((answer) => tool_calls!.some(({ id }) => id === answer.tool_call_id)) };
      })
      .addEdge(START, 'model')
      .addEdge('model', 'tools')
      .addConditionalEdges('tools', ({ messages }) => (messages.filter((m) => m.getType() === 'ai').length < calls.length ? 'model' : END))
      .compile({ checkpointer: saver, interruptBefore: ['tools'] });
  const config = { ...thread('tools'), durability: 'sync' as const };
  await build(saverOf(t, world, { steps: true })).invoke({ messages: [new HumanMessage('go')] }, config);
  for (let n = 0; n < calls.length; n++) await build(saverOf(t, world, { steps: true })).invoke(null, config);
  const { runs } = JSON.parse(world.run('runs', 'langgraph', '--json')) as { runs: { run: string }[] };
  const { steps } = JSON.parse(world.run('steps', 'langgraph', '--run', runs[0]!.run, '--json')) as { steps: Record<string, unknown>[] };
  const seen = steps.map(({ key, name, args, status, turn, outcome }) => ({ key, name, args, status, turn, outcome }));
  assert.deepEqual(seen.sort((a, b) => String(a.key).localeCompare(String(b.key))), record.steps);
});

interface Recorded {
  calls: { id: string; tool_calls: { id: string; name: string; args: Record<string, unknown> }[] }[];
  answers: { tool_call_id: string; content: string; status?: 'success' | 'error' }[];
  steps: object[];
}
