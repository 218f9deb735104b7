import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';

import { convertToModelMessages, createUIMessageStream, readUIMessageStream, streamText, type UIMessage, validateUIMessages } from 'ai';
import { MockLanguageModelV4, simulateReadableStream } from 'ai/test';
import { SidecarChats } from 'ckptsidecar/ai-sdk';

import { until, World } from '../../test/world.js';

const world = await World.start();
const chats = (agent?: string): SidecarChats<UIMessage> => new SidecarChats<UIMessage>({ sidecar: world.client(), ...(agent ? { agent } : {}) });
const says = (id: string, text: string): UIMessage => ({ id, role: 'user', parts: [{ type: 'text', text }] });

test('chats are kept as the guides of the SDK keep them', async () => {
  const mine = chats();
  const id = await mine.createChat();
  assert.deepEqual(await mine.loadChat(id), []);
  const messages: UIMessage[] = [
    says('1', 'weather?'),
    {
      id: '2',
      role: 'assistant',
      metadata: { model: 'm', at: 7 },
      parts: [
        { type: 'step-start' },
        { type: 'reasoning', text: 'hm', state: 'done' },
        { type: 'tool-weather', toolCallId: 'c1', state: 'output-available', input: { city: 'Bern' }, output: { celsius: 7 } },
        { type: 'data-note', data: { a: 1 } },
        { type: 'file', mediaType: 'image/png', url: 'data:image/png;base64,AA==' },
      ],
    },
  ];
  await mine.saveChat({ chatId: id, messages });
  const other = chats(); // as another process has it
  assert.deepEqual(await validateUIMessages({ messages: await other.loadChat(id) }), messages);
  await other.saveChat({ id, activeStreamId: 's1' });
  assert.deepEqual(await mine.readChat(id), { id, messages, activeStreamId: 's1' });
  await mine.saveChat({ id, messages: messages.slice(0, 1), activeStreamId: null });
  assert.deepEqual(await other.readChat(id), { id, messages: messages.slice(0, 1), activeStreamId: null });
  await mine.saveMessage({ chatId: id, message: messages[1]! });
  await other.saveMessage({ chatId: id, message: says('3', 'thanks') });
  await other.saveMessage({ chatId: id, message: says('1', 'changed') });
  assert.deepEqual((await mine.loadChat(id)).map((m) => m.id), ['1', '2', '3']);
  assert.deepEqual((await mine.loadChat(id))[0], says('1', 'changed'));
  await mine.createChat('ä/ö');
  assert.deepEqual((await mine.listChats()).map((chat) => chat.id), ['ä/ö', id]);
  await mine.deleteChat(id);
  assert.deepEqual(await other.loadChat(id), []);
  assert.deepEqual((await other.listChats()).map((chat) => chat.id), ['ä/ö']);
  await assert.rejects(mine.saveChat({ id: 'x', messages: [{ ...says('1', 'a'), metadata: () => 1 }] }), { code: 'not_serializable' });
  await assert.rejects(async () => mine.loadChat(''), { code: 'invalid' });
});

test('what the SDK streams is saved at its end, and the next turn has it', async () => {
  const mine = chats('stream');
  const ask = async (text: string): Promise<string> => {
    const before = await mine.loadChat('c');
    const messages = [...before, says(`u${before.length}`, text)];
    const prompt = await convertToModelMessages(messages);
    const usage = { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } };
    const chunks = [
      { type: 'text-start' as const, id: 't' },
      { type: 'text-delta' as const, id: 't', delta: `${prompt.length} messages` },
      { type: 'text-end' as const, id: 't' },
      { type: 'finish' as const, finishReason: { unified: 'stop' as const, raw: 'stop' }, usage },
    ];
    const model = new MockLanguageModelV4({ doStream: async () => ({ stream: simulateReadableStream({ chunks }) }) });
    let saved: Promise<void> | undefined;
    const stream = createUIMessageStream<UIMessage>({
      originalMessages: messages,
      execute: ({ writer }) => writer.merge(streamText({ model, messages: prompt }).toUIMessageStream()),
      onEnd: ({ messages: all }) => (saved = mine.saveChat({ chatId: 'c', messages: all })),
    });
    for await (const _ of readUIMessageStream({ stream }));
    await saved;
    return (await chats('stream').loadChat('c')).at(-1)!.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('');
  };
  assert.equal(await ask('one'), '1 messages');
  assert.equal(await ask('two'), '3 messages');
});

test('an agent of the SDK that is killed, with its daemon, goes on after the calls that were kept', { timeout: 240_000 }, async () => {
  const effects = join(world.dir, 'ai-effects');
  writeFileSync(effects, '');
  const lines = (): string[] => readFileSync(effects, 'utf8').split('\n').slice(0, -1);
  const life = () => {
    const child = spawn(process.execPath, [fileURLToPath(new URL('child-ai.js', import.meta.url)), effects], { env: world.env, stdio: ['ignore', 'inherit', 'inherit'] });
    return { child, ended: new Promise<number | null>((done) => child.once('exit', done)) };
  };
  for (let kill = 0; kill < 6; kill++) {
    const from = lines().length;
    const { child, ended } = life();
    await until(`life ${kill}`, () => lines().length > from + (kill % 2) || child.exitCode !== null, 60_000);
    if (kill % 3 === 1) {
      await world.stop('SIGKILL');
      await world.start();
    }
    await sleep(Math.random() * 20);
    child.kill('SIGKILL');
    await ended;
    appendFileSync(effects, 'killed\n');
  }
  const { ended } = life();
  assert.equal(await ended, 0);
  const seen = lines();
  for (let n = 1; n <= 8; n++) {
    for (const what of ['asked', 'effect']) {
      const done = seen.flatMap((line, i) => (line === `${what} ${n}` ? [i] : []));
      const kept = seen.indexOf(`kept ${what} ${n}`);
      assert.ok(done.length > 0 && kept >= 0, `${what} ${n} is not there: ${seen.join(', ')}`);
      assert.ok(done.every((i) => i < kept), `${what} ${n} was done again after it was kept: ${seen.join(', ')}`);
    }
  }
  assert.equal(seen.at(-1), 'result the sum is 36');
  const { steps } = JSON.parse(world.run('steps', 'ai-killed', '--json')) as { steps: { name: string; turn: string | null; outcome: string | null; input_tokens: number | null }[] };
  const tools = steps.filter((step) => step.name === 'add');
  assert.deepEqual(tools.map((step) => step.turn), [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `answer-${n}`));
  assert.deepEqual(tools.map((step) => step.outcome), [null, null, null, 'negative', null, null, null, null]);
  assert.deepEqual(steps.filter((step) => step.name === 'model').map((step) => step.input_tokens), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
});
