import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import {
  deleteSession,
  forkSession,
  getSessionInfo,
  getSessionMessages,
  getSubagentMessages,
  importSessionToStore,
  InMemorySessionStore,
  query,
  listSessions,
  listSubagents,
  renameSession,
  type SessionKey,
  type SessionStore,
  type SessionStoreEntry,
  tagSession,
} from '@anthropic-ai/claude-agent-sdk';
import { SidecarSessionStore } from 'ckptsidecar/claude-agent';

import { folder, World } from '../../test/world.js';

const world = await World.start();
type Full = SessionStore & Required<Pick<SessionStore, 'listSessions' | 'listSessionSummaries' | 'delete' | 'listSubkeys'>>;

function store(agent: string): Full {
  return new SidecarSessionStore({ agent, sidecar: world.client() });
}

const entry = (type: string, more: object = {}): SessionStoreEntry => ({ type, ...more });

/** Does the same with a store and answers all that is seen of it. */
async function exercise(s: Full): Promise<unknown[]> {
  const seen: unknown[] = [];
  const main: SessionKey = { projectKey: 'p', sessionId: 's' };
  const sub: SessionKey = { ...main, subpath: 'subagents/agent-a' };
  const other: SessionKey = { projectKey: 'p', sessionId: 's2' };
  const elsewhere: SessionKey = { projectKey: 'p2', sessionId: 's' };
  const look = async (): Promise<void> => {
    for (const key of [main, sub, { ...main, subpath: 'subagents/agent-b' }, other, elsewhere]) seen.push(structuredClone(await s.load(key)));
    for (const project of ['p', 'p2', 'never']) seen.push((await s.listSessions(project)).map((x) => x.sessionId).sort());
    for (const key of [main, other]) seen.push((await s.listSubkeys(key)).sort());
  };
  await look();
  await s.append(sub, [entry('sub', { uuid: 'u1' })]);
  await look();
  await s.append(main, [entry('a', { uuid: 'u1', nested: { x: [1, 2, { y: null }] } }), entry('title', { text: 'ä "quoted" \u2028' })]);
  await s.append(main, [entry('b', { uuid: 'u2' }), entry('title', { text: 'the same' }), entry('title', { text: 'the same' })]);
  await s.append(other, [entry('c')]);
  await s.append(elsewhere, [entry('d')]);
  await s.append({ ...main, subpath: 'subagents/agent-b' }, [entry('e')]);
  await look();
  await s.delete(sub);
  await look();
  await s.delete({ projectKey: 'x', sessionId: 'never' });
  await s.delete(main);
  await look();
  await s.append(main, [entry('anew', { uuid: 'u1' })]);
  await look();
  return seen;
}

test('it does what the store of the SDK does, step by step', async () => {
  assert.deepEqual(await exercise(store('stepwise')), await exercise(new InMemorySessionStore()));
});

test('to append nothing does nothing', async () => {
  const mine = store('nothing');
  const key = { projectKey: 'p', sessionId: 's' };
  await mine.append(key, []);
  assert.deepEqual([await mine.load(key), await mine.listSessions('p')], [null, []]);
  await mine.append(key, [entry('a')]);
  await mine.append(key, []);
  assert.deepEqual(await mine.load(key), [entry('a')]);
});

test('an entry that comes again is there once, also from another process', async () => {
  const key = { projectKey: 'p', sessionId: 's' };
  const a = entry('a', { uuid: 'u1' });
  const b = entry('b', { uuid: 'u2' });
  const first = store('again');
  await first.append(key, [a, a, b]);
  await first.append(key, [a]);
  await store('again').append(key, [b, entry('c', { uuid: 'u3' }), entry('plain')]);
  await first.append(key, [a, entry('plain')]);
  assert.deepEqual((await first.load(key))!.map((e) => e.type), ['a', 'b', 'c', 'plain', 'plain']);
  const agent = world.client().agent('again');
  const { run } = (await agent.runs()).runs[0]!;
  const before = (await agent.info(run)).updated_at;
  await first.append(key, [a, b]);
  assert.equal((await agent.info(run)).updated_at, before, 'nothing new saves nothing');
});

test('a transcript that another process has deleted is begun anew', async () => {
  const key = { projectKey: 'p', sessionId: 's' };
  const a = entry('a', { uuid: 'u1' });
  const first = store('deleted');
  await first.append(key, [a]);
  await store('deleted').delete(key);
  await first.append(key, [a]);
  assert.deepEqual(await first.load(key), [a]);
});

test('what many processes append at once is all there, each in its order', async () => {
  const key = { projectKey: 'p', sessionId: 's' };
  await Promise.all(Array.from({ length: 4 }, async (_, who) => {
    const mine = store('crowd');
    for (let n = 0; n < 10; n++) await mine.append(key, [entry(`${who}`, { n, uuid: randomUUID() })]);
  }));
  const all = (await store('crowd').load(key))!;
  assert.equal(all.length, 40);
  for (let who = 0; who < 4; who++) assert.deepEqual(all.filter((e) => e.type === `${who}`).map((e) => e['n']), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test('appends of one process that nobody waits for keep their order', async () => {
  const key = { projectKey: 'p', sessionId: 's' };
  const mine = store('hasty');
  const e = entry('x', { n: 0 });
  const waiting = Array.from({ length: 20 }, (_, n) => ((e['n'] = n), mine.append(key, [e])));
  await Promise.all(waiting);
  assert.deepEqual((await mine.load(key))!.map((x) => x['n']), Array.from({ length: 20 }, (_, n) => n));
});

test('more sessions than are kept in memory, and names of any kind', async () => {
  const mine = store('many');
  const keys = Array.from({ length: 70 }, (_, n) => ({ projectKey: `/home/ä/${n % 2}`, sessionId: `s ${n}`, ...(n % 3 ? {} : { subpath: `subagents/ü/${n}` }) }));
  for (const key of keys) await mine.append(key, [entry('1', { key })]);
  for (const key of keys) await mine.append(key, [entry('2')]);
  for (const key of keys) assert.deepEqual(await mine.load(key), [entry('1', { key }), entry('2')]);
  assert.equal((await mine.listSessions('/home/ä/0')).length, keys.filter((k) => k.projectKey.endsWith('0') && !k.subpath).length);
  await assert.rejects(mine.append({ projectKey: 'p', sessionId: 's', subpath: '' }, [entry('x')]), { code: 'invalid', message: /subpath/ });
});

test('people see the project, the session, and whose subagent it was', async () => {
  const mine = store('shown');
  const key = { projectKey: '-home-me', sessionId: 'a0eebc99' };
  await mine.append(key, [entry('a')]);
  await mine.append({ ...key, subpath: 'subagents/agent-x' }, [entry('b')]);
  const { runs } = await world.client().agent('shown').runs();
  const [main, sub] = [runs.find((r) => !r.parent_run)!, runs.find((r) => r.parent_run)!];
  assert.match(main.run, /^a0eebc99-[0-9a-f]{16}$/);
  assert.deepEqual([sub.parent_run, sub.labels], [main.run, { subpath: 'subagents/agent-x' }]);
  for (const run of runs) assert.deepEqual([run.workflow, run.external_session], ['-home-me', 'a0eebc99']);
  const shown = JSON.parse(world.run('restore', 'shown', '--run', sub.run)) as unknown;
  assert.deepEqual(shown, { ...key, subpath: 'subagents/agent-x', entries: [{ type: 'b' }] });
});

test('mtime is when it was written to last, in whole milliseconds', async () => {
  const mine = store('times');
  const before = Date.now();
  await mine.append({ projectKey: 'p', sessionId: 's' }, [entry('a')]);
  const { mtime } = (await mine.listSessions('p'))[0]!;
  assert.ok(Number.isInteger(mtime) && mtime >= before && mtime <= Date.now(), `${before} ${mtime}`);
});

test('a run of another program is not taken for a transcript', async () => {
  const mine = store('foreign');
  const key = { projectKey: 'p', sessionId: 's' };
  await mine.append(key, [entry('a')]);
  const agent = world.client().agent('foreign');
  await agent.save({ something: 'else' }, { run: (await agent.runs()).runs[0]!.run });
  await assert.rejects(mine.load(key), { code: 'invalid', message: /does not hold/ });
});

test('a transcript costs what is appended', async () => {
  const mine = store('long');
  const key = { projectKey: 'p', sessionId: 's' };
  const noise = (n: number): string => Array.from({ length: 2000 }, (_, i) => ((i * 2654435761 + n * 40503) >>> 7).toString(36)).join('');
  for (let n = 0; n < 30; n++) await mine.append(key, [entry('a', { text: noise(n) })]);
  const agent = world.client().agent('long');
  const [last] = (await agent.list({ run: (await agent.runs()).runs[0]!.run })).checkpoints;
  assert.ok(last!.stored_size < last!.size / 8, `${last!.stored_size} bytes were stored for the last of ${last!.size}`);
});

/** A session as Claude Code leaves it on disk, and one of its subagents. */
function transcripts(): { dir: string; sessionId: string } {
  const dir = folder();
  const sessionId = randomUUID();
  const project = join(process.env['CLAUDE_CONFIG_DIR']!, 'projects', dir.replace(/[^A-Za-z0-9]/g, '-'));
  let parentUuid: string | null = null;
  const line = (type: 'user' | 'assistant', text: string, more: object = {}): string => {
    const uuid = randomUUID();
    const message = type === 'user' ? { role: 'user', content: text } : { role: 'assistant', model: 'm', content: [{ type: 'text', text }] };
    const common = { parentUuid, isSidechain: false, userType: 'external', cwd: dir, sessionId, version: '2.1.330', timestamp: new Date().toISOString() };
    parentUuid = uuid;
    return `${JSON.stringify({ ...common, type, message, uuid, ...more })}\n`;
  };
  mkdirSync(join(project, sessionId, 'subagents'), { recursive: true });
  const turns = Array.from({ length: 20 }, (_, n) => line('user', `question ${n}`) + line('assistant', `answer ${n}`));
  writeFileSync(join(project, `${sessionId}.jsonl`), turns.join(''));
  parentUuid = null;
  const side = { isSidechain: true, agentId: 'helper' };
  writeFileSync(join(project, sessionId, 'subagents', 'agent-helper.jsonl'), line('user', 'look it up', side) + line('assistant', 'found', side));
  return { dir, sessionId };
}

test('the functions of the SDK work on it: import, messages, subagents, rename, tag, fork, list, delete', async () => {
  const mine = store('sdk');
  const { dir, sessionId } = transcripts();
  const options = { dir, sessionStore: mine };
  await importSessionToStore(sessionId, mine, { dir, batchSize: 7 });
  await importSessionToStore(sessionId, mine, { dir, batchSize: 7 }); // doubles nothing
  const messages = await getSessionMessages(sessionId, options);
  assert.equal(messages.length, 40);
  assert.deepEqual(messages, await getSessionMessages(sessionId, { dir }), 'as they are on disk');
  assert.deepEqual(await listSubagents(sessionId, options), ['helper']);
  assert.equal((await getSubagentMessages(sessionId, 'helper', options)).length, 2);
  await renameSession(sessionId, 'the weather', options);
  await tagSession(sessionId, 'kept', options);
  const info = await getSessionInfo(sessionId, options);
  assert.deepEqual([info?.customTitle, info?.tag], ['the weather', 'kept']);
  const fork = await forkSession(sessionId, { ...options, upToMessageId: messages[9]!.uuid });
  assert.equal((await getSessionMessages(fork.sessionId, options)).length, 10);
  const ids = async (): Promise<string[]> => (await listSessions(options)).map((s) => s.sessionId).sort();
  assert.deepEqual(await ids(), [sessionId, fork.sessionId].sort());
  await deleteSession(sessionId, options);
  assert.deepEqual(await ids(), [fork.sessionId]);
  assert.deepEqual(await getSessionMessages(sessionId, options), []);
  assert.deepEqual(await listSubagents(sessionId, options), []);
});

/** What is listed, without times. */
const summaries = async (s: Full, project: string): Promise<unknown[]> =>
  (await s.listSessionSummaries(project)).map(({ sessionId, data }) => ({ sessionId, data })).sort((a, b) => (a.sessionId < b.sessionId ? -1 : 1));

test('summaries are those that the SDK would make, whoever appended', async () => {
  const [mine, other, theirs] = [store('summed'), store('summed'), new InMemorySessionStore()];
  const user = (text: string, more: object = {}): SessionStoreEntry => entry('user', { uuid: randomUUID(), timestamp: '2026-01-01T00:00:00.000Z', cwd: '/x', message: { role: 'user', content: text }, ...more });
  const appended: [SessionKey, SessionStoreEntry[]][] = [
    [{ projectKey: 'p', sessionId: 'a' }, [user('hello'), entry('custom-title', { customTitle: 'old', uuid: 'u1' })]],
    [{ projectKey: 'p', sessionId: 'b' }, [user('another ä')]],
    [{ projectKey: 'p', sessionId: 'a', subpath: 'subagents/agent-x' }, [user('of a subagent')]],
    [{ projectKey: 'q', sessionId: 'a' }, [user('elsewhere', { isSidechain: true })]],
    [{ projectKey: 'p', sessionId: 'a' }, [user('and again', { gitBranch: 'main' }), entry('custom-title', { customTitle: 'new', uuid: 'u2' }), entry('tag', { tag: 't' })]],
    [{ projectKey: 'p', sessionId: 'b' }, [entry('tag', { tag: 't' }), entry('tag', { tag: '' })]],
  ];
  for (const [n, [key, entries]] of appended.entries()) {
    await (n % 2 ? other : mine).append(key, entries);
    await theirs.append(key, entries);
    for (const project of ['p', 'q', 'never']) assert.deepEqual(await summaries(mine, project), await summaries(theirs, project));
  }
  await mine.append(...appended[4]!); // which changes nothing
  for (const { sessionId, mtime } of await mine.listSessionSummaries('p')) {
    assert.equal(mtime, (await mine.listSessions('p')).find((session) => session.sessionId === sessionId)!.mtime, 'both are of one clock');
  }
  await mine.delete({ projectKey: 'p', sessionId: 'a' });
  assert.deepEqual((await summaries(mine, 'p')).length, 1);
});

test('a list of sessions reads no transcript, and one that was written without the SDK is summed up later', async () => {
  const mine = store('listed');
  const { dir, sessionId } = transcripts();
  await importSessionToStore(sessionId, mine, { dir, batchSize: 7 });
  const project = (await world.client().agent('listed').runs()).runs.find((run) => run.external_session === sessionId && !run.parent_run)!.workflow!;
  const loaded: string[] = [];
  const counted: SessionStore = {
    append: (...given) => mine.append(...given),
    load: (key) => (loaded.push(key.sessionId), mine.load(key)),
    listSessions: (key) => mine.listSessions(key),
    listSessionSummaries: (key) => mine.listSessionSummaries(key),
  };
  const listed = await listSessions({ dir, sessionStore: counted });
  assert.deepEqual(loaded, []);
  assert.deepEqual(listed.map(({ sessionId: id, firstPrompt }) => ({ id, firstPrompt })), [{ id: sessionId, firstPrompt: 'question 0' }]);
  const { listSessionSummaries: _, ...without } = counted;
  const plain = (sessions: object[]): unknown => sessions.map((session) => JSON.parse(JSON.stringify({ ...session, fileSize: undefined }))); // only a transcript has a size
  assert.deepEqual(plain(await listSessions({ dir, sessionStore: without })), plain(listed), 'as from the transcript');

  // An append that cannot be summed up: the SDK reads that transcript.
  const broken = new SidecarSessionStore({ agent: 'listed', sidecar: world.client(), foldSessionSummary: () => assert.fail('no') });
  await broken.append({ projectKey: project, sessionId }, [entry('tag', { tag: 'later', uuid: randomUUID() })]);
  assert.deepEqual(await mine.listSessionSummaries(project), []);
  loaded.length = 0;
  assert.equal((await listSessions({ dir, sessionStore: counted }))[0]!.tag, 'later');
  assert.deepEqual(loaded, [sessionId]);
  await mine.append({ projectKey: project, sessionId }, [entry('tag', { tag: 'now', uuid: randomUUID() })]);
  loaded.length = 0;
  assert.deepEqual((await listSessions({ dir, sessionStore: counted })).map(({ tag, firstPrompt }) => [tag, firstPrompt]), [['now', 'question 0']]);
  assert.deepEqual(loaded, []);
});

/** One turn of the SDK with the stand-in for Claude Code; what it answers. */
async function turn(prompt: string, dir: string, sessionStore: SessionStore, resume?: string): Promise<{ answer: string; sessionId: string }> {
  const options = { cwd: dir, sessionStore, pathToClaudeCodeExecutable: fileURLToPath(new URL('claude-code.js', import.meta.url)), ...(resume ? { resume } : {}) };
  for await (const message of query({ prompt, options })) {
    if (message.type === 'system' && message.subtype === 'mirror_error') assert.fail(message.error);
    if (message.type === 'result' && message.subtype === 'success') return { answer: message.result, sessionId: message.session_id };
  }
  return assert.fail('no result came');
}

test('query mirrors into it, and resumes from it in a folder where nothing is left', { timeout: 60_000 }, async () => {
  const dir = folder();
  const first = await turn('hello', dir, store('query'));
  assert.equal(first.answer, 'you have said: hello');
  rmSync(join(process.env['CLAUDE_CONFIG_DIR']!, 'projects'), { recursive: true });
  const second = await turn('and again', dir, store('query'), first.sessionId);
  assert.equal(second.answer, 'you have said: hello, and again');
  const messages = await getSessionMessages(first.sessionId, { dir, sessionStore: store('query') });
  assert.deepEqual(messages.map((m) => m.type), ['user', 'assistant', 'user', 'assistant']);
});
