import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  Agent,
  type AgentInputItem,
  MemorySession,
  Runner,
  type Session,
  type SessionHistoryRewriteAwareSession,
  type SessionHistoryTransactionAwareSession,
  isSessionHistoryRewriteAwareSession,
  isSessionHistoryTransactionAwareSession,
  tool,
} from '@openai/agents-core';
import { assistantMessage, functionCall, ScriptedModel } from '@openai/agents-core/testing';
import { SidecarSession } from 'ckptsidecar/openai-agents';

import { until, World } from '../../test/world.js';

const world = await World.start();
type Full = Session & SessionHistoryTransactionAwareSession & SessionHistoryRewriteAwareSession;
type Item = AgentInputItem;

/** A session, typed as the SDK's own interfaces. */
function session(sessionId?: string): Full {
  return new SidecarSession({ sidecar: world.client(), ...(sessionId === undefined ? {} : { sessionId }) });
}

const says = (text: string): Item => ({ type: 'message', role: 'user', content: text });
const texts = (items: Item[]): unknown[] => items.map((item) => (item as { content: unknown }).content);
const call = (callId: string, args: string) => ({ type: 'function_call', callId, name: 'f', arguments: args, status: 'completed' }) as const;

test('it has what the SDK looks for', async () => {
  const mine = session('capable');
  assert.ok(isSessionHistoryTransactionAwareSession(mine) && isSessionHistoryRewriteAwareSession(mine));
  assert.equal(await mine.getSessionId(), 'capable');
  assert.notEqual(await session().getSessionId(), await session().getSessionId());
});

/** Does the same with a session and answers all that is seen of it. */
async function exercise(s: Full): Promise<unknown[]> {
  const seen: unknown[] = [];
  const look = async (answer?: unknown): Promise<void> => void seen.push(structuredClone(answer), await s.getItems());
  const attempt = async (args: Parameters<Full['applyHistoryTransaction']>[0]): Promise<void> =>
    look(await Promise.resolve(s.applyHistoryTransaction(args)).then(() => 'done', () => 'refused'));
  await look(await s.popItem());
  await s.addItems([]);
  await look();
  await s.addItems([says('a'), says('b'), says('c'), call('1', '{"x":1}'), call('1', '{"x":2}'), call('2', '{}')]);
  for (const limit of [-1, 0, 1, 2, 6, 100]) await look(await s.getItems(limit));
  await look(await s.popItem());
  await s.applyHistoryMutations({ mutations: [{ type: 'replace_function_call', callId: '1', replacement: call('1', '{"x":3}') }] });
  await look();
  const append = { type: 'append_items', items: [says('d')] } as const;
  await attempt({ operationId: 'o1', transaction: { ...append, items: [...append.items] } });
  await attempt({ operationId: 'o1', transaction: { ...append, items: [...append.items] } });
  await attempt({ operationId: 'o1', transaction: { type: 'append_items', items: [says('e')] } });
  await attempt({ operationId: ' ', transaction: { type: 'append_items', items: [says('e')] } });
  await attempt({ operationId: '__proto__', transaction: { type: 'replace_suffix', expectedSuffix: [says('x')], replacement: [] } });
  const reordered = { content: 'd', role: 'user', type: 'message' } as Item;
  await attempt({ operationId: '__proto__', transaction: { type: 'replace_suffix', expectedSuffix: [call('1', '{"x":3}'), reordered], replacement: [says('f'), says('g')] } });
  await attempt({ operationId: '__proto__', transaction: { type: 'replace_suffix', expectedSuffix: [call('1', '{"x":3}'), reordered], replacement: [says('f'), says('g')] } });
  await attempt({ operationId: 'o3', transaction: { type: 'replace_suffix', expectedSuffix: Array.from({ length: 50 }, () => says('f')), replacement: [] } });
  await attempt({ operationId: 'o4', transaction: { type: 'replace_suffix', expectedSuffix: [], replacement: [says('h')] } });
  await attempt({ operationId: 'o5', transaction: { type: 'no_such' } as never });
  const given = [says('mine')];
  await s.addItems(given);
  (given[0] as { content: string }).content = 'changed by the caller';
  ((await s.getItems())[0] as { content: string }).content = 'changed by a reader';
  await look(await s.popItem());
  await s.clearSession();
  await look(await s.popItem());
  await attempt({ operationId: 'o1', transaction: { type: 'append_items', items: [says('again')] } });
  return seen;
}

test('it does what the session of the SDK does, step by step', async () => {
  assert.deepEqual(await exercise(session('stepwise')), await exercise(new MemorySession()));
});

test('another process finds it, and knows which changes were made', async () => {
  const first = session('shared');
  await first.applyHistoryTransaction({ operationId: 'turn 1', transaction: { type: 'append_items', items: [says('a')] } });
  const second = session('shared');
  await second.applyHistoryTransaction({ operationId: 'turn 1', transaction: { type: 'append_items', items: [says('a')] } });
  await second.addItems([says('b')]);
  await first.addItems([says('c')]);
  assert.deepEqual(texts(await second.getItems()), ['a', 'b', 'c']);
  assert.deepEqual(texts(await session('other').getItems()), []);
});

test('what another process has done is seen also where nothing is to be written', async () => {
  const [first, second] = [session('seen'), session('seen')];
  await first.addItems([says('a')]);
  await first.popItem();
  await second.addItems([says('b')]);
  assert.deepEqual(texts([(await first.popItem())!]), ['b']);
  assert.equal(await second.popItem(), undefined);
  await first.addItems([says('c')]);
  await second.addItems([says('d')]);
  await first.applyHistoryTransaction({ operationId: 'o', transaction: { type: 'replace_suffix', expectedSuffix: [says('c'), says('d')], replacement: [says('e')] } });
  await second.clearSession();
  await first.applyHistoryTransaction({ operationId: 'o', transaction: { type: 'append_items', items: [says('f')] } });
  assert.deepEqual(texts(await second.getItems()), ['f']);
});

test('what many clients add at once is all there', async () => {
  const sessions = Array.from({ length: 4 }, () => session('crowd'));
  await Promise.all(sessions.map(async (s, who) => {
    for (let n = 0; n < 10; n++) await s.addItems([says(`${who}.${n}`)]);
  }));
  const all = texts(await session('crowd').getItems()) as string[];
  assert.equal(new Set(all).size, 40);
  for (let who = 0; who < 4; who++) assert.deepEqual(all.filter((t) => t.startsWith(`${who}.`)), Array.from({ length: 10 }, (_, n) => `${who}.${n}`));
});

test('one operation that many clients try at once is made once', async () => {
  await Promise.all(Array.from({ length: 6 }, () => session('once').applyHistoryTransaction({ operationId: 'o', transaction: { type: 'append_items', items: [says('a')] } })));
  assert.deepEqual(texts(await session('once').getItems()), ['a']);
});

test('names that no run may have are told apart', async () => {
  const names = ['a/b', 'a_b', 'ä', '', ' ', '日本', '-x', 'x'.repeat(400), 'x'.repeat(401)].filter((name) => name !== '');
  for (const name of names) await session(name).addItems([says(name)]);
  for (const name of names) assert.deepEqual(texts(await session(name).getItems()), [name]);
  assert.throws(() => session(''), { code: 'invalid' });
});

test('bytes and what JSON cannot say come back; what cannot be saved is refused and changes nothing', async () => {
  const s = session('bytes');
  const item = { ...says('a'), providerData: { raw: new Uint8Array([1, 2, 255]), left: undefined } } as Item;
  await s.addItems([item]);
  assert.deepEqual((await s.getItems())[0], { ...says('a'), providerData: { raw: new Uint8Array([1, 2, 255]) } });
  const bad = { ...says('b'), providerData: { f: () => 1 } } as Item;
  await assert.rejects(s.addItems([bad]), { code: 'not_serializable', message: /\/0\/providerData\/f/ });
  await assert.rejects(async () => s.applyHistoryTransaction({ operationId: 'o', transaction: { type: 'append_items', items: [bad] } }), { code: 'invalid' });
  assert.equal((await s.getItems()).length, 1);
});

/** Makes a transaction and answers whether it was refused. */
async function refuses(s: Full, transaction: unknown): Promise<boolean> {
  return Promise.resolve(s.applyHistoryTransaction({ operationId: 'o', transaction: transaction as never })).then(() => false, () => true);
}

/** What a transaction may not hold, each with a name. */
function unsupportedItems(): Record<string, unknown> {
  const item = (providerData: unknown): unknown => ({ ...says('a'), providerData });
  const cycle: Record<string, unknown> = {};
  cycle['self'] = cycle;
  const hidden = says('hidden');
  Object.defineProperty(hidden, 'providerData', { enumerable: false, value: { a: 1 } });
  const accessor = Object.defineProperty(says('accessor'), 'id', { enumerable: true, get: () => 'x' });
  const more = Object.assign([says('a')], { more: 1 });
  return {
    'a date': [item({ at: new Date(0) })],
    'a cycle': [item(cycle)],
    'a bigint': [item({ n: 1n })],
    'a map': [item({ m: new Map() })],
    'a function': [item({ f: () => 1 })],
    'a symbol': [item({ s: Symbol('x') })],
    'a symbol as a name': [item({ [Symbol('x')]: 1 })],
    'numbers of 16 bits': [item({ n: new Uint16Array([300]) })],
    'an object of a class': [item(new (class A {})())],
    'a sparse array': new Array(1),
    'an array with more members': more,
    'a proxy': new Proxy([says('a')], {}),
    'a hidden member': [hidden],
    'an accessor': [accessor],
    'a number': [42],
    'a text': ['x'],
    null: [null],
    'no list': { 0: says('a'), length: 1 },
  };
}

test('a transaction with what the SDK refuses is refused, and changes nothing', async () => {
  const mine = session('refuse');
  const theirs = new MemorySession();
  for (const [name, items] of Object.entries(unsupportedItems())) {
    for (const transaction of [{ type: 'append_items', items }, { type: 'replace_suffix', expectedSuffix: [], replacement: items }, { type: 'replace_suffix', expectedSuffix: items, replacement: [] }]) {
      assert.equal(await refuses(theirs, transaction), true, `theirs takes ${name}`);
      assert.equal(await refuses(mine, transaction), true, `ours takes ${name}`);
    }
  }
  for (const transaction of [
    { type: 'append_items', items: [], metadata: {} },
    { type: 'append_items' },
    { items: [] },
    { type: 'replace_suffix', expectedSuffix: [], replacement: [], items: [] },
    { type: 'replace_suffix', replacement: [] },
    { type: 'toString', items: [] },
    null,
    'append_items',
  ]) {
    assert.equal(await refuses(theirs, transaction), true, `theirs takes ${JSON.stringify(transaction)}`);
    assert.equal(await refuses(mine, transaction), true, `ours takes ${JSON.stringify(transaction)}`);
  }
  assert.deepEqual(await mine.getItems(), []);
  await mine.applyHistoryTransaction({ operationId: 'o', transaction: { type: 'append_items', items: [says('none was noted')] } });
  assert.deepEqual(texts(await mine.getItems()), ['none was noted']);
});

/** Items of each type that the SDK knows. */
const known: object[] = [
  { role: 'user', content: 'x' },
  { type: 'message', role: 'user', id: 'i', content: [{ type: 'input_text', text: 'x' }, { type: 'input_image', image: { id: 'f' } }, { type: 'input_file', file: { url: 'u' } }, { type: 'audio', audio: 'a' }] },
  { role: 'system', content: 'x', providerData: { a: 1 } },
  { role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: 'x' }, { type: 'refusal', refusal: 'x' }, { type: 'image', image: 'x' }] },
  { type: 'hosted_tool_call', name: 'n', arguments: '{}', status: 's', output: 'o' },
  { type: 'program', callId: 'c', code: 'x', fingerprint: 'f' },
  { type: 'program_output', callId: 'c', output: 'x', status: 'completed' },
  { type: 'function_call', callId: 'c', name: 'n', arguments: '{}', status: 'completed' },
  { type: 'function_call_result', callId: 'c', name: 'n', status: 'completed', output: 'x' },
  { type: 'function_call_result', callId: 'c', name: 'n', status: 'incomplete', output: { type: 'text', text: 'x' } },
  { type: 'function_call_result', callId: 'c', name: 'n', status: 'completed', output: [{ type: 'input_text', text: 'x' }] },
  { type: 'tool_search_output', tools: [{ a: 1 }] },
  { type: 'computer_call', callId: 'c', status: 'completed', action: { type: 'screenshot' } },
  { type: 'computer_call', callId: 'c', status: 'completed', actions: [{ type: 'click', x: 1, y: 2, button: 'left' }] },
  { type: 'computer_call_result', callId: 'c', output: { type: 'computer_screenshot', data: 'd' } },
  { type: 'shell_call', callId: 'c', action: { commands: ['ls'] } },
  { type: 'shell_call_output', callId: 'c', output: [{ stdout: '', stderr: '', outcome: { type: 'exit', exitCode: 0 } }] },
  { type: 'apply_patch_call', callId: 'c', status: 'completed', operation: { type: 'delete_file', path: 'p' } },
  { type: 'apply_patch_call_output', callId: 'c', status: 'failed', output: 'x' },
  { type: 'reasoning', content: [{ type: 'input_text', text: 'x' }] },
  { type: 'compaction', encrypted_content: 'x' },
  { type: 'unknown' },
];

test('an item is refused where the SDK refuses it', async () => {
  const mine = session('items');
  let tried = 0;
  for (const item of known) {
    const members = Object.keys(item).filter((name) => name !== 'type');
    const broken = members.flatMap((name) => [{ ...item, [name]: undefined }, { ...item, [name]: 7 }, { ...item, [name]: [7] }, { ...item, [name]: 'other' }]);
    for (const one of [item, ...broken, { ...item, id: 7 }, { ...item, providerData: 'x' }]) {
      const given = () => ({ type: 'append_items', items: [structuredClone(one)] });
      assert.equal(await refuses(mine, given()), await refuses(new MemorySession(), given()), `ours and theirs differ on ${JSON.stringify(one)}`);
      await mine.clearSession();
      tried++;
    }
  }
  assert.ok(tried > 200);
  await mine.addItems([says('a')]);
  assert.equal(await refuses(mine, { type: 'append_items', items: [{ type: 'of_a_newer_sdk', x: 1 }] }), false, 'a type that nobody knows yet');
});

test('errors of a transaction say nothing of what it holds, and its arguments are read once', async () => {
  const s = session('quiet');
  const secret = 'sk-secret-of-the-caller';
  const throwing = (name: string) =>
    Object.defineProperty({}, name, {
      enumerable: true,
      get: () => {
        throw new Error(secret);
      },
    });
  const attempts: object[] = [
    throwing('operationId'),
    { operationId: 'o', transaction: throwing('type') },
    { operationId: 'o', transaction: { type: 'append_items', items: [throwing('role')] } },
    { operationId: 'o', transaction: { type: 'append_items', items: [{ ...says('a'), providerData: { key: Symbol(secret) } }] } },
    { operationId: 'o', transaction: { type: secret, items: [] } },
    { operationId: 'o', transaction: { type: 'append_items', items: [{ type: 'function_call', callId: secret }] } },
  ];
  for (const args of attempts) {
    await assert.rejects(async () => s.applyHistoryTransaction(args as never), (error: Error) => {
      assert.ok(!`${error.stack} ${JSON.stringify(error)} ${String(error.cause)}`.includes(secret), error.message);
      return (error as { code?: string }).code === 'invalid';
    });
  }
  for (const args of [undefined, null, 7]) await assert.rejects(async () => s.applyHistoryTransaction(args as never), { code: 'invalid' });
  let reads = 0;
  const transaction = { type: 'append_items', items: [says('once')] };
  await s.applyHistoryTransaction(Object.defineProperty({ transaction }, 'operationId', { get: () => `read ${++reads}` }) as never);
  assert.equal(reads, 1);
  assert.deepEqual(texts(await s.getItems()), ['once']);
});

test('what a transaction holds is copied at once, and is the same however it was made', async () => {
  const s = session('copied');
  const shared = new Uint8Array(new SharedArrayBuffer(2));
  shared.set([3, 7]);
  const item = { ...says('a'), providerData: Object.assign(Object.create(null), { bytes: shared }) as object } as Item;
  const done = s.applyHistoryTransaction({ operationId: 'o', transaction: { type: 'append_items', items: [item] } });
  shared[0] = 9;
  await done;
  const again = { ...says('a'), providerData: { bytes: new Uint8Array([3, 7]) } } as Item;
  await s.applyHistoryTransaction({ operationId: 'o', transaction: { type: 'append_items', items: [again] } });
  const saved = await s.getItems();
  assert.deepEqual(saved, [again]);
  await s.applyHistoryTransaction({ operationId: 'o2', transaction: { type: 'replace_suffix', expectedSuffix: saved, replacement: [says('b')] } });
  assert.deepEqual(texts(await s.getItems()), ['b']);
});

test('it has the optional members of the interface', async () => {
  const s = session('optional');
  const item = { ...says('a'), providerData: { left: undefined, kept: 1 } } as Item;
  await s.addItems([item]);
  assert.deepEqual(s.prepareHistoryItemsForPersistenceComparison!([item]), await s.getItems());
  assert.equal(s.prepareHistoryItemForModelInput!(item), item);
  assert.equal(s.preserveReasoningItemIdsForPersistence!(), false);
  await s.replaceHistoryWithCompaction!([{ type: 'compaction', encrypted_content: 'x' }]);
  assert.deepEqual((await s.getItems()).map(({ type }) => type), ['compaction']);
});

test('a session is a run that people can look at, cleared it is gone from the disk', async () => {
  const s = session('thread 7');
  for (const text of ['one', 'two']) await s.addItems([says(text)]);
  const agent = world.client().agent('openai-agents');
  const of = async () => (await agent.runs({ limit: 100 })).runs.find((run) => run.external_session === 'thread 7')!;
  const run = await of();
  assert.match(run.run, /^thread_7-[0-9a-f]{16}$/);
  const shown = JSON.parse(world.run('restore', 'openai-agents', '--run', run.run)) as { session: string; items: Item[] };
  assert.deepEqual([shown.session, texts(shown.items)], ['thread 7', ['one', 'two']]);
  assert.equal((await agent.policy()).sensitivity, 'off');
  await s.clearSession();
  await s.clearSession();
  assert.deepEqual((await agent.list({ run: run.run })).checkpoints, []);
  assert.equal((await of()).status, 'completed');
  assert.deepEqual(await s.getItems(), []);
  await s.addItems([says('three')]);
  assert.deepEqual(texts(await session('thread 7').getItems()), ['three']);
});

test('an agent that is there already keeps its policy', async () => {
  const sidecar = world.client();
  await sidecar.agent('own').setPolicy({ routine_keep: 7 });
  await new SidecarSession({ sidecar, agent: 'own', sessionId: 's' }).addItems([says('a')]);
  const { routine_keep: keep, sensitivity } = await sidecar.agent('own').policy();
  assert.deepEqual([keep, sensitivity], [7, 'normal']);
});

test('a long session costs what is added to it', async () => {
  const s = session('long');
  const noise = (n: number): string => Array.from({ length: 2000 }, (_, i) => ((i * 2654435761 + n * 40503) >>> 7).toString(36)).join('');
  for (let n = 0; n < 30; n++) await s.addItems([says(noise(n))]);
  const agent = world.client().agent('openai-agents');
  const { run } = (await agent.runs({ limit: 100 })).runs.find((r) => r.external_session === 'long')!;
  const { checkpoints } = await agent.list({ run });
  const last = checkpoints[0]!;
  assert.ok(last.stored_size < last.size / 8, `${last.stored_size} bytes were stored for the last of ${last.size}`);
});

test('while the daemon is away the conversation goes on, and is sent later', async () => {
  const own = await World.start();
  const sidecar = own.client({ deadline: 100 });
  const s: Session = new SidecarSession({ sessionId: 'away', sidecar });
  await s.addItems([says('before')]);
  await own.stop('SIGKILL');
  await s.addItems([says('meanwhile')]);
  assert.deepEqual(texts(await s.getItems()), ['before', 'meanwhile']);
  assert.deepEqual(texts([(await s.popItem())!]), ['meanwhile']);
  await s.addItems([says('later')]);
  assert.equal(own.spooled().length, 3);
  await assert.rejects(new SidecarSession({ sessionId: 'away', sidecar: own.client({ deadline: 50 }) }).getItems(), { code: 'no_daemon' });
  await own.start();
  assert.deepEqual(texts(await new SidecarSession({ sessionId: 'away', sidecar: own.client() }).getItems()), ['before', 'later']);
  await s.addItems([says('after')]);
  assert.deepEqual(texts(await s.getItems()), ['before', 'later', 'after']);
  await until('all is sent', () => own.spooled().length === 0, 30_000); // a busy daemon takes longer than the deadline of 100 ms
});

test('an agent with a tool goes on in another process where it was', async () => {
  const weather = tool({ name: 'weather', description: 'the weather', parameters: { type: 'object', properties: {}, required: [], additionalProperties: false }, strict: true, execute: async () => 'rain' });
  const turn = async (question: string, model: ScriptedModel): Promise<unknown> => {
    const agent = new Agent({ name: 'a', model, tools: [weather] });
    return (await new Runner({ tracingDisabled: true }).run(agent, question, { session: session('agent') })).finalOutput;
  };
  const first = new ScriptedModel([[functionCall('weather', {}, { callId: 'c1' })], [assistantMessage('it rains')]]);
  assert.equal(await turn('how is the weather?', first), 'it rains');
  const second = new ScriptedModel([[assistantMessage('as I said: it rains')]]);
  assert.equal(await turn('and now?', second), 'as I said: it rains');
  const input = second.firstCall!.request.input as Item[];
  assert.deepEqual(input.map((item) => item.type ?? 'message'), ['message', 'function_call', 'function_call_result', 'message', 'message']);
  first.assertComplete();
  second.assertComplete();
  assert.equal((await session('agent').getItems()).length, 6);
});
