import { randomUUID } from 'node:crypto';

import { InMemoryDB, InMemoryMemory, MemoryStorage } from '@mastra/core/storage';

import type { Agent } from '../agent.js';
import { Shelf } from './shelf.js';

type Of<M extends keyof MemoryStorage> = MemoryStorage[M] extends (...args: infer A) => infer R ? { args: A; answer: Awaited<R> } : never;
type Thread = Of<'saveThread'>['answer'];
type Resource = Of<'saveResource'>['answer'];
type StoredMessage = InMemoryDB['messages'] extends Map<string, infer V> ? V : never;

/** A thread with its messages. Messages may come before their thread. */
interface Kept {
  id: string;
  thread: Thread | null;
  messages: StoredMessage[];
}

/** Messages as they are saved: their content is JSON, for people to read, and not text that holds JSON. */
const readable = (m: StoredMessage): StoredMessage => ({ ...m, content: JSON.parse(m.content) as never });
const stored = (m: StoredMessage): StoredMessage => ({ ...m, content: JSON.stringify(m.content) });

/**
 * Mastra's storage of threads, messages and working memory. A thread with its messages is one run, and each change of it one checkpoint;
 * so is a resource. What a call means is decided by Mastra's own in-memory storage, which is given what the call is about, and whose
 * outcome is saved.
 */
export class SidecarMemory extends MemoryStorage {
  override readonly supportsPartialThreadUpdate = true;
  private readonly threads: Shelf<Kept>;
  private readonly resources: Shelf<Resource>;
  private readonly where = new Map<string, string>(); // the thread of a message, as far as it was seen

  constructor(agent: Agent) {
    super();
    this.threads = new Shelf(agent, 'thread');
    this.resources = new Shelf(agent, 'resource');
  }

  async dangerouslyClearAll(): Promise<void> {
    await this.threads.clear();
    await this.resources.clear();
    this.where.clear();
  }

  async getThreadById(args: Of<'getThreadById'>['args'][0]): Promise<Thread | null> {
    return (await this.loaded([args.threadId])).getThreadById(args);
  }

  async saveThread(args: Of<'saveThread'>['args'][0]): Promise<Thread> {
    return this.onThread(args.thread.id, (theirs) => theirs.saveThread({ thread: structuredClone(args.thread) }));
  }

  async updateThread(args: Of<'updateThread'>['args'][0]): Promise<Thread> {
    return this.onThread(args.id, (theirs) => theirs.updateThread(args));
  }

  /** Reads the thread and writes its metadata as one change, also where other processes do the same. */
  override async updateThreadMetadata({ id, resourceId, update }: Of<'updateThreadMetadata'>['args'][0]): Promise<Thread | null> {
    return this.onThread(id, async (theirs) => {
      const thread = await theirs.getThreadById({ threadId: id, ...(resourceId === undefined ? {} : { resourceId }) });
      const metadata = thread && update(thread);
      return metadata ? theirs.updateThread({ id, metadata }) : thread;
    });
  }

  override async updateThreadResourceId(args: Of<'updateThreadResourceId'>['args'][0]): Promise<Thread> {
    const { threadId, resourceId } = args;
    return this.onThread(threadId, async (theirs, db) => {
      const thread = db.threads.get(threadId);
      if (!thread) throw new Error(`Thread with id ${threadId} not found`);
      if (thread.resourceId === resourceId) return thread;
      for (const message of db.messages.values()) message.resourceId = resourceId;
      return theirs.saveThread({ thread: { ...thread, resourceId, updatedAt: new Date() } });
    });
  }

  async deleteThread({ threadId }: { threadId: string }): Promise<void> {
    await this.threads.remove(threadId);
  }

  async listMessages(args: Of<'listMessages'>['args'][0]): Promise<Of<'listMessages'>['answer']> {
    const threads = (Array.isArray(args.threadId) ? args.threadId : [args.threadId]).filter((id) => id.trim());
    const others = args.include?.length ? await this.threadsOf(args.include.map(({ id }) => id), threads) : [];
    return (await this.loaded([...threads, ...others])).listMessages(args);
  }

  override async listMessagesByResourceId(args: Of<'listMessagesByResourceId'>['args'][0]): Promise<Of<'listMessagesByResourceId'>['answer']> {
    return (await this.loadedAll()).listMessagesByResourceId(args);
  }

  async listMessagesById(args: Of<'listMessagesById'>['args'][0]): Promise<Of<'listMessagesById'>['answer']> {
    return (await this.loaded(await this.threadsOf(args.messageIds))).listMessagesById(args);
  }

  /** Those of one thread are one checkpoint. */
  async saveMessages({ messages }: Of<'saveMessages'>['args'][0]): Promise<Of<'saveMessages'>['answer']> {
    const checked = messages.map((message) => {
      if (!message.threadId) throw new Error('Thread ID is required');
      if (!message.resourceId) throw new Error('Resource ID is required for each message');
      return message;
    });
    for (const thread of new Set(checked.map((m) => m.threadId!))) {
      await this.onThread(thread, (theirs) => theirs.saveMessages({ messages: checked.filter((m) => m.threadId === thread) }));
    }
    return new InMemoryMemory({ db: new InMemoryDB() }).saveMessages({ messages });
  }

  /** Those of one thread are one checkpoint. A message that goes to another thread is put there first, and then taken away here. */
  async updateMessages({ messages }: Of<'updateMessages'>['args'][0]): Promise<Of<'updateMessages'>['answer']> {
    const answers = new Map<string, Of<'updateMessages'>['answer'][0]>();
    for (const thread of await this.threadsOf(messages.map(({ id }) => id))) {
      const moved = new Map<string, StoredMessage[]>();
      const update = async (theirs: InMemoryMemory, db: InMemoryDB): Promise<void> => {
        moved.clear();
        for (const updated of await theirs.updateMessages({ messages })) answers.set(updated.id, updated);
        for (const message of db.messages.values()) {
          if (message.thread_id !== thread) moved.set(message.thread_id, [...(moved.get(message.thread_id) ?? []), message]);
        }
      };
      const kept = await this.threads.read(thread);
      const trial = dbOf(kept ? [kept] : []);
      await update(new InMemoryMemory({ db: trial }), trial);
      for (const [target, arrived] of moved) {
        await this.onThread(target, async (_, db) => {
          for (const message of arrived) db.messages.set(message.id, message);
          const own = db.threads.get(target);
          if (own) own.updatedAt = new Date();
        });
      }
      await this.onThread(thread, update);
    }
    return messages.flatMap(({ id }) => answers.get(id) ?? []);
  }

  override async deleteMessages(messageIds: string[]): Promise<void> {
    for (const thread of await this.threadsOf(messageIds)) await this.onThread(thread, (theirs) => theirs.deleteMessages(messageIds));
  }

  async listThreads(args: Of<'listThreads'>['args'][0]): Promise<Of<'listThreads'>['answer']> {
    return (await this.loadedAll()).listThreads(args);
  }

  override async copyThread(args: Of<'copyThread'>['args'][0]): Promise<Of<'copyThread'>['answer']> {
    const id = args.newThreadId ?? randomUUID();
    const source = await this.threads.read(args.sourceThreadId);
    return this.onThread(id, (theirs, db) => {
      fill(db, source ? [source] : []);
      return theirs.copyThread({ ...args, newThreadId: id });
    });
  }

  override async getResourceById({ resourceId }: { resourceId: string }): Promise<Resource | null> {
    return (await this.resources.read(resourceId)) ?? null;
  }

  override async saveResource({ resource }: { resource: Resource }): Promise<Resource> {
    await this.resources.change([resource.id], { workflow: 'resource', externalSession: resource.id }, async () => resource);
    return resource;
  }

  override async updateResource(args: Of<'updateResource'>['args'][0]): Promise<Resource> {
    let answer: Resource | undefined;
    const { resourceId } = args;
    await this.resources.change([resourceId], { workflow: 'resource', externalSession: resourceId }, async (resource) => {
      const db = new InMemoryDB();
      if (resource) db.resources.set(resourceId, resource);
      return (answer = await new InMemoryMemory({ db }).updateResource(args));
    });
    return answer!;
  }

  /** Does something with Mastra's own storage over one thread, and saves what has become of it. */
  private async onThread<T>(id: string, work: (theirs: InMemoryMemory, db: InMemoryDB) => Promise<T>): Promise<T> {
    let answer: T | undefined;
    await this.threads.change([id], { workflow: 'thread', externalSession: id }, async (kept) => {
      const db = dbOf(kept ? [kept] : []);
      answer = await work(new InMemoryMemory({ db }), db);
      const messages = [...db.messages.values()].filter((m) => m.thread_id === id);
      for (const message of messages) this.where.set(message.id, id);
      return { id, thread: db.threads.get(id) ?? null, messages: messages.map(readable) };
    });
    return answer as T;
  }

  private async loaded(ids: string[]): Promise<InMemoryMemory> {
    const kept = await Promise.all([...new Set(ids)].map((id) => this.threads.read(id)));
    return new InMemoryMemory({ db: this.seen(kept.filter((one) => one !== undefined)) });
  }

  private async loadedAll(): Promise<InMemoryMemory> {
    return new InMemoryMemory({ db: this.seen(await this.threads.all()) });
  }

  private seen(kept: Kept[]): InMemoryDB {
    for (const { id, messages } of kept) for (const message of messages) this.where.set(message.id, id);
    return dbOf(kept);
  }

  /** The threads of messages. Where one was not seen here, all threads are read. */
  private async threadsOf(messages: string[], loaded: string[] = []): Promise<string[]> {
    if (loaded.length > 0) await this.loaded(loaded);
    if (messages.some((id) => !this.where.has(id))) await this.loadedAll();
    return [...new Set(messages.flatMap((id) => this.where.get(id) ?? []))];
  }
}

function dbOf(kept: Kept[]): InMemoryDB {
  const db = new InMemoryDB();
  fill(db, kept);
  return db;
}

function fill(db: InMemoryDB, kept: Kept[]): void {
  for (const { id, thread, messages } of structuredClone(kept)) {
    if (thread) db.threads.set(id, thread);
    for (const message of messages) db.messages.set(message.id, stored(message));
  }
}
