import assert from 'node:assert/strict';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { spawn } from 'node:child_process';

import { InMemoryStore, type MemoryStorage, type WorkflowsStorage } from '@mastra/core/storage';
import { SidecarMastraStore } from 'ckptsidecar/mastra';

import { until, World } from '../../test/world.js';

const world = await World.start();

async function domains(store: { getStore(name: any): Promise<any> }): Promise<{ memory: MemoryStorage; workflows: WorkflowsStorage }> {
  return { memory: await store.getStore('memory'), workflows: await store.getStore('workflows') };
}

const ours = (agent: string) => domains(new SidecarMastraStore({ sidecar: world.client(), agent }));

/** Times that are now are told apart by nobody; those that were given are. */
const given = new Date('2026-01-01T00:00:00Z').getTime();
function steady(value: unknown): unknown {
  if (value instanceof Date) return value.getTime() < given + 1e9 ? value.toISOString() : 'now';
  if (Array.isArray(value)) return value.map(steady);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).filter(([, v]) => v !== undefined).map(([k, v]) => [k, steady(v)]));
}

const at = (n: number): Date => new Date(given + n * 1000);
const message = (id: string, threadId: string, resourceId: string, n: number, more: object = {}): any => ({
  id, threadId, resourceId, role: n % 2 ? 'assistant' : 'user', type: 'text', createdAt: at(n),
  content: { format: 2, parts: [{ type: 'text', text: `text ${id}` }], content: `text ${id}`, metadata: { n } }, ...more,
});
const thread = (id: string, resourceId: string, n: number, metadata: Record<string, unknown> = {}): any => ({ id, resourceId, title: `title ${id}`, metadata, createdAt: at(n), updatedAt: at(n) });

/** Does the same with a memory storage, and answers all that is seen of it. */
async function remembered(memory: MemoryStorage): Promise<unknown[]> {
  const seen: unknown[] = [];
  const attempt = async (work: () => Promise<unknown>): Promise<void> => void seen.push(steady(await work().catch((error: Error) => `refused: ${error.message}`)));
  await attempt(() => memory.getThreadById({ threadId: 'none' }));
  await attempt(() => memory.listThreads({}));
  for (const [id, resource, n] of [['a', 'r1', 1], ['b', 'r1', 2], ['c/ü', 'r2', 3]] as const) await attempt(() => memory.saveThread({ thread: thread(id, resource, n, { color: n === 2 ? 'red' : 'blue' }) }));
  await attempt(() => memory.getThreadById({ threadId: 'a', resourceId: 'r2' }));
  await attempt(() => memory.saveMessages({ messages: [1, 2, 3, 4, 5, 6].map((n) => message(`m${n}`, n < 5 ? 'a' : 'b', 'r1', n)) }));
  await attempt(() => memory.saveMessages({ messages: [message('m2', 'a', 'r1', 2, { role: 'system' })] }));
  for (const more of [{}, { perPage: 2, page: 1 }, { perPage: false as const }, { orderBy: { field: 'createdAt' as const, direction: 'DESC' as const } }, { filter: { dateRange: { start: at(2), end: at(3) } } }]) {
    await attempt(() => memory.listMessages({ threadId: 'a', ...more }));
  }
  await attempt(() => memory.listMessages({ threadId: ['a', 'b'], perPage: 3 }));
  await attempt(() => memory.listMessages({ threadId: 'b', perPage: 0, include: [{ id: 'm3', threadId: 'a', withPreviousMessages: 1, withNextMessages: 1 }] }));
  await attempt(() => memory.listMessages({ threadId: '' }));
  await attempt(() => memory.listMessagesById({ messageIds: ['m6', 'm1', 'none'] }));
  await attempt(() => memory.listMessagesByResourceId({ resourceId: 'r1', perPage: 4 }));
  await attempt(() => memory.updateMessages({ messages: [{ id: 'm1', content: { metadata: { more: true } } as never }, { id: 'm4', threadId: 'b' }, { id: 'none', role: 'user' }] }));
  await attempt(() => memory.listMessages({ threadId: 'a' }));
  await attempt(() => memory.listMessages({ threadId: 'b' }));
  await attempt(() => memory.deleteMessages(['m2', 'm5', 'none']));
  await attempt(() => memory.listMessages({ threadId: ['a', 'b'] }));
  await attempt(() => memory.updateThread({ id: 'a', metadata: { more: 1 } }));
  await attempt(() => memory.updateThread({ id: 'a', title: 'new' }));
  await attempt(() => memory.updateThread({ id: 'none', title: 'new' }));
  await attempt(() => memory.updateThreadMetadata({ id: 'a', update: (t) => ({ ...t.metadata, last: 2 }) }));
  await attempt(() => memory.updateThreadMetadata({ id: 'none', update: () => ({}) }));
  await attempt(() => memory.listThreads({ filter: { resourceId: 'r1' }, orderBy: { field: 'createdAt', direction: 'ASC' } }));
  await attempt(() => memory.listThreads({ filter: { metadata: { color: 'red' } } }));
  await attempt(() => memory.listThreads({ perPage: 1, page: 1, orderBy: { field: 'createdAt', direction: 'ASC' } }));
  await attempt(() => memory.copyThread({ sourceThreadId: 'a', newThreadId: 'copy', options: { messageLimit: 1 } }).then(({ thread: t }) => t));
  await attempt(() => memory.copyThread({ sourceThreadId: 'none', newThreadId: 'copy 2' }));
  await attempt(() => memory.copyThread({ sourceThreadId: 'b', newThreadId: 'copy' }));
  await attempt(() => memory.listMessages({ threadId: 'copy' }).then(({ messages }) => messages.map(({ content }) => content)));
  await attempt(() => memory.updateThreadResourceId({ threadId: 'b', resourceId: 'r3' }).then((t) => t.resourceId));
  await attempt(() => memory.listMessagesByResourceId({ resourceId: 'r3' }));
  await attempt(() => memory.getResourceById({ resourceId: 'r1' }));
  await attempt(() => memory.saveResource({ resource: { id: 'r1', workingMemory: 'likes tea', metadata: { a: 1 }, createdAt: at(1), updatedAt: at(1) } }));
  await attempt(() => memory.updateResource({ resourceId: 'r1', metadata: { b: 2 } }));
  await attempt(() => memory.updateResource({ resourceId: 'r2', workingMemory: 'new' }));
  await attempt(() => memory.getResourceById({ resourceId: 'r1' }));
  await attempt(() => memory.deleteThread({ threadId: 'a' }));
  await attempt(() => memory.getThreadById({ threadId: 'a' }));
  await attempt(() => memory.listMessages({ threadId: 'a' }));
  await attempt(() => memory.deleteThread({ threadId: 'none' }));
  await memory.dangerouslyClearAll();
  await attempt(() => memory.listThreads({}));
  return seen;
}

test('the memory is what that of Mastra is, call by call', async () => {
  const theirs = await remembered((await domains(new InMemoryStore())).memory);
  const mine = await remembered((await ours('memory')).memory);
  for (let n = 0; n < Math.max(theirs.length, mine.length); n++) assert.deepEqual(mine[n], theirs[n], `call ${n}`);
});

const snapshot = (runId: string, status: string, more: object = {}): any => ({
  runId, status, value: {}, context: { input: { x: 1 } }, serializedStepGraph: [], activePaths: [], activeStepsPath: {}, suspendedPaths: {}, resumeLabels: {}, waitingPaths: {}, timestamp: 1, ...more,
});

/** The same for workflow snapshots. */
async function workflowed(workflows: WorkflowsStorage): Promise<unknown[]> {
  const seen: unknown[] = [];
  const attempt = async (work: () => Promise<unknown>): Promise<void> => void seen.push(steady(await work().catch((error: Error) => `refused: ${error.message}`)));
  const of = (workflowName: string, runId: string) => ({ workflowName, runId });
  await attempt(() => workflows.loadWorkflowSnapshot(of('w', 'none')));
  await attempt(() => workflows.listWorkflowRuns());
  await attempt(() => workflows.updateWorkflowResults({ ...of('w', 'none'), stepId: 's', result: {} as never, requestContext: {} }));
  await attempt(() => workflows.updateWorkflowState({ ...of('w', 'none'), opts: { status: 'running' } }));
  for (const [name, run, n] of [['w', '1', 1], ['w', '2', 2], ['v', '1', 3]] as const) {
    await attempt(() => workflows.persistWorkflowSnapshot({ ...of(name, run), resourceId: `r${n}`, snapshot: snapshot(run, n === 2 ? 'suspended' : 'running'), createdAt: at(n), updatedAt: at(n) }));
  }
  await attempt(() => workflows.persistWorkflowSnapshot({ ...of('w', '1'), snapshot: snapshot('1', 'running', { when: at(9), failed: { at: at(4) } }) }));
  await attempt(() => workflows.updateWorkflowResults({ ...of('w', '1'), stepId: 's', result: { status: 'success', output: { y: 2 }, payload: {}, startedAt: 1, endedAt: 2 }, requestContext: { k: 'v' } }));
  await attempt(() => workflows.updateWorkflowState({ ...of('w', '1'), opts: { status: 'success', result: { z: 3 } as never } }));
  await attempt(() => workflows.loadWorkflowSnapshot(of('w', '1')));
  for (const filter of [{}, { workflowName: 'w' }, { status: 'suspended' as const }, { resourceId: 'r3' }, { fromDate: at(2), toDate: at(2) }, { perPage: 1, page: 1 }]) await attempt(() => workflows.listWorkflowRuns(filter));
  await attempt(() => workflows.getWorkflowRunById({ runId: '1' }));
  await attempt(() => workflows.getWorkflowRunById({ runId: '1', workflowName: 'w' }));
  await attempt(() => workflows.getWorkflowRunById({ runId: 'none' }));
  await attempt(() => workflows.deleteWorkflowRunById(of('w', '1')));
  await attempt(() => workflows.loadWorkflowSnapshot(of('w', '1')));
  await attempt(() => workflows.listWorkflowRuns().then(({ total }) => total));
  await workflows.dangerouslyClearAll();
  await attempt(() => workflows.listWorkflowRuns());
  return seen;
}

test('workflow snapshots are what those of Mastra are, call by call', async () => {
  const theirs = await workflowed((await domains(new InMemoryStore())).workflows);
  const mine = await workflowed((await ours('workflows')).workflows);
  for (let n = 0; n < Math.max(theirs.length, mine.length); n++) assert.deepEqual(mine[n], theirs[n], `call ${n}`);
});

test('what several processes change at once is all there', async () => {
  const stores = await Promise.all([1, 2, 3].map(() => ours('crowd')));
  await stores[0]!.memory.saveThread({ thread: thread('t', 'r', 1) });
  await stores[0]!.workflows.persistWorkflowSnapshot({ workflowName: 'w', runId: '1', snapshot: snapshot('1', 'running') });
  await Promise.all(stores.map(async ({ memory, workflows }, who) => {
    for (let n = 0; n < 5; n++) {
      await memory.saveMessages({ messages: [message(`${who}.${n}`, 't', 'r', n)] });
      await workflows.updateWorkflowResults({ workflowName: 'w', runId: '1', stepId: `${who}.${n}`, result: { status: 'success' } as never, requestContext: {} });
    }
  }));
  assert.equal((await stores[1]!.memory.listMessages({ threadId: 't', perPage: false })).messages.length, 15);
  const { context } = (await stores[2]!.workflows.loadWorkflowSnapshot({ workflowName: 'w', runId: '1' }))!;
  assert.equal(Object.keys(context).length, 16);
});

test('a workflow that is killed, with its daemon, goes on after the steps that were kept, and its suspension stays', { timeout: 240_000 }, async () => {
  const effects = join(world.dir, 'mastra-effects');
  writeFileSync(effects, '');
  const lines = (): string[] => readFileSync(effects, 'utf8').split('\n').slice(0, -1);
  const life = () => {
    const child = spawn(process.execPath, [fileURLToPath(new URL('child-mastra.js', import.meta.url)), effects], { env: world.env, stdio: ['ignore', 'inherit', 'inherit'] });
    return { child, ended: new Promise<number | null>((done) => child.once('exit', done)) };
  };
  for (let kill = 0; kill < 6; kill++) {
    const from = lines().length;
    const { child, ended } = life();
    await until(`life ${kill}`, () => lines().length > from || child.exitCode !== null, 60_000);
    if (kill % 3 === 1) {
      await world.stop('SIGKILL');
      await world.start();
    }
    await sleep(Math.random() * 40);
    child.kill('SIGKILL');
    await ended;
    appendFileSync(effects, 'killed\n');
  }
  const { ended } = life();
  assert.equal(await ended, 0);
  const seen = lines();
  for (let n = 1; n <= 8; n++) {
    const done = seen.flatMap((line, i) => (line === `effect ${n}` ? [i] : []));
    const kept = seen.indexOf(`kept ${n}`);
    assert.ok(done.length > 0, `step ${n} was never done: ${seen.join(', ')}`);
    assert.ok(kept < 0 || done.every((i) => i < kept), `step ${n} was done again after it was kept: ${seen.join(', ')}`);
  }
  assert.ok(seen.includes('kept 1') && seen.includes('kept 8'));
  assert.equal(seen.at(-1), 'result 36');
});
