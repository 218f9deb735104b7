// The programs of the adapters for clients/conformance/conformance.py: node conform.js ADAPTER.
import { createInterface } from 'node:readline';

import { Sidecar } from 'ckptsidecar';
import { SidecarChats } from 'ckptsidecar/ai-sdk';
import { SidecarSessionStore } from 'ckptsidecar/claude-agent';
import { SidecarMastraStore } from 'ckptsidecar/mastra';
import { SidecarSession } from 'ckptsidecar/openai-agents';

interface Adapter {
  agent: string;
  append: (session: string, value: string) => Promise<unknown>;
  read: (session: string) => Promise<string[]>;
  remove: (session: string) => Promise<unknown>;
}

const sidecar = new Sidecar({ deadline: '60s', startDeadline: '60s' });
const sessions = new Map<string, SidecarSession>();
const session = (sessionId: string): SidecarSession => {
  if (!sessions.has(sessionId)) sessions.set(sessionId, new SidecarSession({ sessionId, sidecar }));
  return sessions.get(sessionId)!;
};
const store = new SidecarSessionStore({ sidecar });
const key = (sessionId: string) => ({ projectKey: 'p', sessionId });
const chats = new SidecarChats({ sidecar });
const memory = (await new SidecarMastraStore({ sidecar }).getStore('memory'))!;
let ids = 0;

const adapters: Record<string, Adapter> = {
  'openai-agents': {
    agent: 'openai-agents',
    append: (id, value) => session(id).addItems([{ type: 'message', role: 'user', content: value }]),
    read: async (id) => (await session(id).getItems()).map((item) => item.content as string),
    remove: (id) => session(id).clearSession(),
  },
  'claude-agent': {
    agent: 'claude-agent',
    append: (id, value) => store.append(key(id), [{ type: 'user', value }]),
    read: async (id) => ((await store.load(key(id))) ?? []).map((entry) => entry['value'] as string),
    remove: (id) => store.delete(key(id)),
  },
  'ai-sdk': {
    agent: 'ai-sdk',
    append: (chatId, value) => chats.saveMessage({ chatId, message: { id: `${process.pid}.${ids++}`, role: 'user', parts: [{ type: 'text', text: value }] } }),
    read: async (id) => (await chats.loadChat(id)).map((message) => message.parts[0].text as string),
    remove: (id) => chats.deleteChat(id),
  },
  mastra: {
    agent: 'mastra',
    append: (threadId, value) =>
      memory.saveMessages({
        messages: [{ id: `${process.pid}.${ids++}`, threadId, resourceId: 'r', role: 'user', createdAt: new Date(), content: { format: 2, parts: [{ type: 'text', text: value }] } }],
      }),
    read: async (threadId) => (await memory.listMessages({ threadId, perPage: false })).messages.map((message) => (message.content.parts[0] as { text: string }).text),
    remove: (threadId) => memory.deleteThread({ threadId }),
  },
};

const name = process.argv[2]!;
const adapter = adapters[name]!;
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line) as { do: string; session: string; value: string };
  let answer: object = {};
  if (command.do === 'hello') answer = { adapter: `ckptsidecar/${name}`, agent: adapter.agent, shared: true, remove: true };
  else if (command.do === 'append') await adapter.append(command.session, command.value);
  else if (command.do === 'read') answer = { values: await adapter.read(command.session) };
  else await adapter.remove(command.session);
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
sidecar.close();
