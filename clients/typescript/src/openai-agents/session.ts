import { randomUUID } from 'node:crypto';

import { Document, runNameOf } from '../document.js';
import { invalid } from '../errors.js';
import { Sidecar } from '../sidecar.js';
import { exact } from './exact.js';
import { form, type History, plain, print } from './history.js';
import { isItem } from './items.js';

export interface SidecarSessionOptions {
  /** which conversation: any text; otherwise a new one */
  sessionId?: string;
  /** the agent under whose name it is saved; `openai-agents` */
  agent?: string;
  /** the client to save with; otherwise one with the defaults */
  sidecar?: Sidecar;
}

/** A change of the history that is made once, however often it is asked for. */
export type HistoryTransaction<Item> =
  | { type: 'append_items'; items: Item[] }
  | { type: 'replace_suffix'; expectedSuffix: Item[]; replacement: Item[] };

/** What `applyHistoryMutations` is asked to do. */
export interface HistoryMutation<Item> {
  type: 'replace_function_call';
  callId: string;
  replacement: Item;
}

/**
 * A `Session` of the OpenAI Agents SDK: the conversation is a run of its own,
 * and each change of it a checkpoint. What a method has answered is on disk.
 */
export class SidecarSession<Item extends object = any> {
  private readonly id: string;
  private readonly history: Document<History<Item>>;

  constructor(options: SidecarSessionOptions = {}) {
    this.id = options.sessionId ?? randomUUID();
    if (typeof this.id !== 'string' || this.id === '') throw invalid('the sessionId is empty: give the session a name, or leave it out');
    const agent = (options.sidecar ?? new Sidecar()).agent(options.agent ?? 'openai-agents');
    this.history = agent.document(runNameOf(this.id, this.id), { workflow: 'session', externalSession: this.id }, form(this.id));
  }

  async getSessionId(): Promise<string> {
    return this.id;
  }

  /** The items, oldest first; with a limit the last ones. */
  async getItems(limit?: number): Promise<Item[]> {
    const { items } = await this.history.read();
    return structuredClone(limit === undefined ? items : items.slice(items.length - Math.min(Math.max(limit, 0), items.length)));
  }

  async addItems(items: Item[]): Promise<void> {
    if (items.length === 0) return;
    const added = plain(items);
    await this.history.change((h) => ({ ...h, items: [...h.items, ...added] }));
  }

  /** Removes the last item and answers it; undefined where there is none. */
  async popItem(): Promise<Item | undefined> {
    let popped: Item | undefined;
    await this.history.change((h) => {
      popped = h.items.at(-1);
      return popped && { ...h, items: h.items.slice(0, -1) };
    });
    return structuredClone(popped);
  }

  /** Removes all items, also from the daemon's disk. */
  clearSession(): Promise<void> {
    return this.history.remove();
  }

  /** Replaces all items at once. */
  async replaceHistoryWithCompaction(items: Item[]): Promise<void> {
    const all = plain(items);
    await this.history.change((h) => ({ ...h, items: all }));
  }

  /** Puts function calls in the place of earlier ones; of several with one id the first stays. */
  async applyHistoryMutations({ mutations }: { mutations: HistoryMutation<Item>[] }): Promise<void> {
    if (mutations.length === 0) return;
    const own = plain(mutations);
    await this.history.change((h) => ({ ...h, items: own.reduce(replaced, h.items) }));
  }

  /**
   * Changes the history once: an operation that is known already does nothing,
   * and throws where it was another. The change and its id are one checkpoint.
   */
  async applyHistoryTransaction(args: { operationId: string; transaction: HistoryTransaction<Item> }): Promise<void> {
    const { operationId, transaction: own } = checked<Item>(args);
    const what = print(own);
    await this.history.change((h) => {
      const before = h.operations.get(operationId);
      if (before === what) return undefined;
      if (before !== undefined) throw invalid(`the operation ${JSON.stringify(operationId)} was already applied with a different transaction: give this one a new operationId`);
      return { ...h, items: applied(own, h.items), operations: new Map(h.operations).set(operationId, what) };
    });
  }

  /** Items go back to the model as they were saved. */
  prepareHistoryItemForModelInput(item: Item): Item {
    return item;
  }

  /** Items as they come back when they have been saved, so that the SDK may compare what it has with what is here. */
  prepareHistoryItemsForPersistenceComparison(items: Item[]): Item[] {
    return plain(items);
  }

  /** Reasoning items are kept as the SDK hands them over, with or without ids. */
  preserveReasoningItemIdsForPersistence(): boolean {
    return false;
  }
}

/** The arguments of a transaction, each read once. What is wrong with them is said without a word of what they hold. */
function checked<Item>(args: { operationId: string; transaction: HistoryTransaction<Item> }): { operationId: string; transaction: HistoryTransaction<Item> } {
  let operationId: unknown;
  let given: unknown;
  try {
    ({ operationId, transaction: given } = args);
  } catch {
    throw invalid('Session history transaction arguments are invalid.');
  }
  if (typeof operationId !== 'string' || operationId.trim() === '') {
    throw invalid('the operationId must be a non-empty string, which stays the same when the change is tried again');
  }
  if (typeof given !== 'object' || given === null) throw invalid('the transaction must be an object');
  const transaction = supported(() => exact(given)) as HistoryTransaction<Item>;
  const names = membersOf[transaction.type];
  if (!Object.hasOwn(membersOf, transaction.type) || !names) {
    throw invalid('Unsupported session history transaction type: it is append_items with items, or replace_suffix with expectedSuffix and replacement');
  }
  const lists = names.map((name) => (transaction as unknown as Record<string, unknown>)[name]);
  if (Object.keys(transaction).length !== names.length + 1 || !lists.every(Array.isArray)) {
    throw invalid(`the ${names.length > 1 ? 'suffix' : 'append'} transaction fields are invalid: they are type, ${names.join(' and ')}`);
  }
  if (!lists.flat().every(isItem)) throw unsupported();
  return { operationId, transaction: plain(transaction) };
}

const membersOf: Record<HistoryTransaction<unknown>['type'], string[]> = { append_items: ['items'], replace_suffix: ['expectedSuffix', 'replacement'] };

function supported<T>(read: () => T): T {
  try {
    return read();
  } catch {
    throw unsupported();
  }
}

function unsupported(): Error {
  return invalid('Session history transaction items contain invalid or unsupported data.');
}

function applied<Item>(t: HistoryTransaction<Item>, items: Item[]): Item[] {
  if (t.type === 'append_items') return [...items, ...t.items];
  const start = items.length - t.expectedSuffix.length;
  if (start < 0 || print(items.slice(start)) !== print(t.expectedSuffix)) throw invalid('the history suffix no longer matches expectedSuffix: read the history again');
  return [...items.slice(0, start), ...t.replacement];
}

function replaced<Item>(items: Item[], { type, callId, replacement }: HistoryMutation<Item>): Item[] {
  if (type !== 'replace_function_call') return items;
  const isCall = (item: Item): boolean => (item as { type?: unknown }).type === 'function_call' && (item as { callId?: unknown }).callId === callId;
  const first = items.findIndex(isCall);
  return items.flatMap((item, n) => (!isCall(item) ? [item] : n === first ? [replacement] : []));
}
