import { randomUUID } from 'node:crypto';

import type { Agent } from '../agent.js';
import { Document, type Form, foreign, runNameOf } from '../document.js';
import { decode } from '../decode.js';
import { encode, NotSerializable } from '../encode.js';
import { invalid, isSidecarError } from '../errors.js';
import { Sidecar } from '../sidecar.js';

export interface SidecarChatsOptions {
  /** the agent under whose name chats are saved; `ai-sdk` */
  agent?: string;
  /** the client to save with; otherwise one with the defaults */
  sidecar?: Sidecar;
}

/** What a `UIMessage` of the AI SDK has in any case. */
export interface ChatMessage {
  id: string;
  role: 'system' | 'user' | 'assistant';
}

/** A chat as it is saved. */
export interface SavedChat<Message> {
  id: string;
  messages: Message[];
  /** the stream that a client may go on reading; null where none is open */
  activeStreamId: string | null;
}

const mostOpen = 64; // chats that are kept in memory between two changes

/**
 * The chat store of the AI SDK's guides: `createChat`, `loadChat`, `saveChat`, `readChat`. A chat is a run of its own, and each save a
 * checkpoint. What a method has answered is on disk.
 */
export class SidecarChats<Message extends ChatMessage = any> {
  private readonly agent: Agent;
  private readonly open = new Map<string, Document<SavedChat<Message>>>(); // the last used one last

  constructor(options: SidecarChatsOptions = {}) {
    this.agent = (options.sidecar ?? new Sidecar()).agent(options.agent ?? 'ai-sdk');
  }

  /** Begins a chat and answers its id. */
  async createChat(id: string = randomUUID()): Promise<string> {
    await this.chat(id).change((chat) => chat);
    return id;
  }

  /** The messages of a chat, oldest first; none of a chat that was never saved. */
  async loadChat(id: string): Promise<Message[]> {
    return (await this.readChat(id)).messages;
  }

  async readChat(id: string): Promise<SavedChat<Message>> {
    return structuredClone(await this.chat(id).read());
  }

  /** Saves all messages of a chat, the id of its stream, or both; what is not given stays. */
  async saveChat(args: { messages?: Message[]; activeStreamId?: string | null } & ({ chatId: string } | { id: string })): Promise<void> {
    const id = 'chatId' in args ? args.chatId : args.id;
    const messages = args.messages && plain(args.messages);
    await this.chat(id).change((chat) => ({
      ...chat,
      ...(messages ? { messages } : {}),
      ...(args.activeStreamId === undefined ? {} : { activeStreamId: args.activeStreamId }),
    }));
  }

  /** Puts one message into a chat: in the place of the one with its id, or at the end. So the messages before it need not be known. */
  async saveMessage({ chatId, message }: { chatId: string; message: Message }): Promise<void> {
    const own = plain(message);
    await this.chat(chatId).change((chat) => {
      const at = chat.messages.findIndex(({ id }) => id === own.id);
      return { ...chat, messages: at < 0 ? [...chat.messages, own] : [...chat.messages.slice(0, at), own, ...chat.messages.slice(at + 1)] };
    });
  }

  /** Removes a chat, also from the daemon's disk. */
  async deleteChat(id: string): Promise<void> {
    await this.chat(id).remove();
  }

  /** The chats, the last changed first. */
  async listChats(): Promise<{ id: string; updatedAt: Date }[]> {
    const found: { id: string; updatedAt: Date }[] = [];
    for (let before: string | undefined; ; ) {
      const page = await this.agent.runs({ limit: 1000, ...(before ? { before } : {}) }).catch((error: unknown) => {
        if (isSidecarError(error, 'not_found')) return { runs: [], next: null };
        throw error;
      });
      for (const run of page.runs) {
        if (run.workflow !== 'chat' || run.ended_at !== null || run.status === 'starting' || run.external_session === null) continue;
        found.push({ id: run.external_session, updatedAt: new Date(run.updated_at) });
      }
      if (!page.next) return found;
      before = page.next;
    }
  }

  private chat(id: string): Document<SavedChat<Message>> {
    if (typeof id !== 'string' || id === '') throw invalid('the id of the chat is empty: give it a name');
    const run = runNameOf(id, id);
    const chat = this.open.get(run) ?? this.agent.document(run, { workflow: 'chat', externalSession: id }, formOf<Message>(id));
    this.open.delete(run);
    this.open.set(run, chat);
    if (this.open.size > mostOpen) this.open.delete(this.open.keys().next().value!);
    return chat;
  }
}

function formOf<Message>(id: string): Form<SavedChat<Message>> {
  return {
    read: (saved) => {
      if (!saved) return { id, messages: [], activeStreamId: null };
      const chat = saved.state as Partial<SavedChat<Message>> | null;
      if (chat?.id !== id || !Array.isArray(chat.messages)) throw foreign(`the chat ${JSON.stringify(id)}`, saved);
      return { id, messages: chat.messages, activeStreamId: chat.activeStreamId ?? null };
    },
    write: (chat) => ({ ...encode(chat), contentType: 'application/json' }),
  };
}

/** A copy of what was given, as it comes back when it has been saved. Throws where something of it cannot be saved. */
function plain<T>(value: T): T {
  const { bytes, dropped } = encode(value, 'drop', 'the messages');
  if (dropped.length > 0) throw new NotSerializable('the messages', dropped);
  return decode(bytes) as T;
}
