import type { RunnableConfig } from '@langchain/core/runnables';
import {
  BaseCheckpointSaver,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointPendingWrite,
  type CheckpointTuple,
  type DeltaChannelHistory,
  getCheckpointId,
  maxChannelVersion,
  MemorySaver,
  type PendingWrite,
  type SerializerProtocol,
  TASKS,
  WRITES_IDX_MAP,
} from '@langchain/langgraph-checkpoint';

import type { Ask } from '../ask.js';
import type { Delivery } from '../delivery.js';
import { Drift, type DriftVerdict, DriftWatch, type Report } from '../drift.js';
import { invalid, isSidecarError, messageOf, SidecarError } from '../errors.js';
import { understood } from '../problem.js';
import { checkAgent, objectOf, post } from '../requests.js';
import { Sidecar, type SidecarOptions } from '../sidecar.js';
import { contentType, frame, Framed, type Typed } from './frame.js';
import { HeldValues, type Holding, type Seen } from './held.js';
import { ToolSteps } from './steps.js';
import type { FindingInfo } from '../wire.js';
import type { HistoryHead, PageHead, PutAnswer, TaskHead, TupleHead } from './wire.js';

export interface SidecarSaverOptions extends SidecarOptions {
  /** a client that is there already; otherwise the saver makes its own, which waits 30 s for a daemon that is away */
  sidecar?: Sidecar;
  /** the agent under which everything is kept; `langgraph` */
  agent?: string;
  /** how channel values become bytes; otherwise LangGraph's own */
  serde?: SerializerProtocol;
  /** record each answer of a tool as a step, with the model's turn, for drift detection and the timeline; false */
  steps?: boolean;
  /** called when the verdict on the drift of a thread gets worse, or something new was found */
  onDrift?: (drift: Drift, thread: { thread: string; ns: string }) => void;
}

/** What a prune leaves of each thread: the newest checkpoint of each namespace, or nothing. */
export type PruneStrategy = 'keep_latest' | 'delete';

/** Threads whose drift is remembered. */
const mostThreads = 10_000;

/** A value on its way to the daemon. */
type Channel = Typed & { channel: string };

/** Metadata is always plain JSON, whatever becomes of values, so that it can be filtered by and read by auditors. */
const plain = new MemorySaver().serde;

/**
 * A checkpointer over the ckptsidecar daemon. What it has acknowledged is on disk; a channel that has not changed costs
 * nothing, and one that grows what it grew by.
 */
export class SidecarSaver extends BaseCheckpointSaver {
  readonly agent: string;
  private readonly sidecar: Sidecar;
  private readonly own: boolean;
  private readonly held = new HeldValues();
  private readonly toolSteps: ToolSteps | undefined;
  private readonly threads = new Map<string, { watch: DriftWatch; run: string }>();
  private readonly onDrift: SidecarSaverOptions['onDrift'];
  private tail: Promise<unknown> = Promise.resolve();

  constructor(options: SidecarSaverOptions = {}) {
    const { sidecar, agent, serde, steps, onDrift, ...rest } = options;
    super(serde);
    this.onDrift = onDrift;
    this.toolSteps = steps ? new ToolSteps() : undefined;
    this.agent = checkAgent(agent ?? 'langgraph');
    this.own = sidecar === undefined;
    this.sidecar = sidecar ?? new Sidecar({ deadline: 30_000, ...rest });
  }

  /** Closes the connection, unless it is somebody else's. */
  close(): void {
    if (this.own) this.sidecar.close();
  }

  async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    const thread = threadOf(config);
    if (thread === undefined) return undefined;
    const ns = nsOf(config) ?? '';
    const query = { thread, ns, checkpoint: getCheckpointId(config) ?? '' };
    const held = this.held.of(thread, ns);
    const answer = await this.askHaving(query, held);
    const head = answer.head.tuples[0];
    if (!head) return undefined;
    const values: Seen[] = head.values.map((of) => ({ channel: of.channel, tag: of.tag, value: of.held ? held.get(of.channel)!.copy() : answer.take(of) }));
    if (query.checkpoint === '') {
      const [fresh, kept] = [values.filter((_, i) => !head.values[i]!.held), values.filter((_, i) => head.values[i]!.held)];
      this.held.put(thread, ns, fresh, kept.map(({ channel }) => channel));
    }
    const tuple = await this.tuple(head, answer, values);
    if (this.toolSteps) {
      for (const value of Object.values(tuple.checkpoint.channel_values)) this.toolSteps.learn(placeOf(thread, ns), value);
      for (const [, , value] of tuple.pendingWrites ?? []) this.toolSteps.learn(placeOf(thread, ns), value);
    }
    return tuple;
  }

  /** Asks for a checkpoint without the values that are held. */
  private async askHaving(query: object, held: Holding): Promise<Framed<PageHead>> {
    if (held.size === 0) return this.ask<PageHead>('get', query);
    const have = Object.fromEntries([...held].map(([channel, value]) => [channel, value.tag]));
    try {
      return await this.ask<PageHead>('get', { ...query, have });
    } catch (error) {
      if (!isSidecarError(error, 'invalid')) throw error;
      this.held.clear(); // another daemon has taken the place of the one that gave the tags
      return this.ask<PageHead>('get', query);
    }
  }

  async *list(config: RunnableConfig, options: CheckpointListOptions = {}): AsyncGenerator<CheckpointTuple> {
    const { before, filter } = options;
    let left = options.limit ?? Infinity;
    const query: Record<string, unknown> = {
      thread: threadOf(config),
      ns: nsOf(config),
      checkpoint: config.configurable?.['checkpoint_id'] ?? '',
      before: before?.configurable?.['checkpoint_id'] ?? '',
      filter: await filterOf(filter),
    };
    while (left > 0) {
      if (left < Infinity) query['limit'] = left;
      const page = await this.ask<PageHead>('list', query);
      for (const head of page.head.tuples) yield await this.tuple(head, page, head.values.map((of) => ({ channel: of.channel, value: page.take(of) })));
      left -= page.head.tuples.length;
      if (!page.head.next) return;
      query['cursor'] = page.head.next;
    }
  }

  async put(config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, newVersions?: ChannelVersions): Promise<RunnableConfig> {
    const thread = needThread(config, 'put a checkpoint');
    const ns = nsOf(config) ?? '';
    const parent = (config.configurable?.['checkpoint_id'] as string | undefined) || null;
    const { channel_values: values, ...bare } = checkpoint;
    const { sent, carry } = partition(checkpoint, newVersions);
    return this.inOrder(Promise.all([plainOf(metadata), this.dumpAll(sent, values)]), async ([plainMetadata, typed]) => {
      const head = { thread, ns, parent, checkpoint: bare, metadata: plainMetadata };
      let answer = await this.putOnce(head, typed, carry);
      let all = typed;
      if (answer.missing.length > 0) {
        const missing = new Set(answer.missing);
        all = [...typed, ...(await this.dumpAll([...missing], values))];
        answer = await this.putOnce(head, all, carry.filter((name) => !missing.has(name)));
      }
      if (answer.missing.length > 0) throw new SidecarError('internal', `the daemon does not accept the channels ${answer.missing.join(', ')}: nothing was saved`);
      this.toolSteps?.isRun(placeOf(thread, ns), answer.run);
      this.threadOf(thread, ns, answer.run).watch.note(answer.drift);
      await this.sendSteps(placeOf(thread, ns));
      const { tags = {} } = answer;
      this.held.put(thread, ns, all.map((value) => ({ channel: value.channel, tag: Object.hasOwn(tags, value.channel) ? tags[value.channel] : undefined, value })), carry);
      return configOf(thread, ns, checkpoint.id);
    });
  }

  async putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string, taskPath = ''): Promise<void> {
    const thread = needThread(config, 'put writes');
    const checkpoint = config.configurable?.['checkpoint_id'] as string | undefined;
    if (!checkpoint) throw invalid('cannot put writes: the config has no configurable.checkpoint_id, which says what they belong to');
    await this.inOrder(Promise.all(writes.map(([, value]) => this.dump(value))), async (typed) => {
      const heads = writes.map(([channel], i) => ({ idx: WRITES_IDX_MAP[channel] ?? i, channel, type: typed[i]!.type, length: typed[i]!.data.length }));
      const ns = nsOf(config) ?? '';
      const head = { thread, ns, checkpoint, task: taskId, path: taskPath, writes: heads };
      await this.send('put_writes', frame(head, typed.map(({ data }) => data)));
      if (!this.toolSteps) return;
      for (const [, value] of writes) this.toolSteps.learn(placeOf(thread, ns), value);
      for (const [, value] of writes) this.toolSteps.note(placeOf(thread, ns), value);
      await this.sendSteps(placeOf(thread, ns));
    });
  }

  /** Tells the daemon of the steps of a thread. They are for drift detection, so the graph goes on where they cannot be told. */
  private async sendSteps(place: string): Promise<void> {
    const found = this.toolSteps?.take(place);
    if (!found) return;
    const run = { agent: this.agent, run: found.run };
    try {
      for (const body of found.steps) {
        const answer = await this.delivery.call(post(`/v1/agents/${run.agent}/runs/${run.run}/steps`, body, run));
        this.threads.get(place)?.watch.note(understood<{ drift?: DriftVerdict }>(answer, true).drift);
      }
    } catch (error) {
      this.delivery.settings.warn(`the tool calls of run ${run.run} could not be recorded as steps: ${messageOf(error)}`);
    }
  }

  /** The last verdict on the drift of a thread. It came with the last put or step: nothing is asked. */
  drift(config: RunnableConfig): Drift {
    const thread = threadOf(config);
    return this.threads.get(placeOf(thread ?? '', nsOf(config) ?? ''))?.watch.last ?? new Drift();
  }

  /** Tells of a finding of the graph's own in a thread, and answers it. */
  async report(config: RunnableConfig, { rule, message, severity, advice, evidence, sinceSeq }: Report): Promise<FindingInfo> {
    const { watch, run } = this.known(config);
    const body = objectOf({ run, rule, severity: severity ?? 'warn', message, advice, evidence, since_seq: sinceSeq });
    return this.found(watch, post(`/v1/agents/${this.agent}/drift/findings`, body, { agent: this.agent, run }));
  }

  /** Says that a finding of a thread was none, or is dealt with. */
  async dismiss(config: RunnableConfig, finding: string, reason?: string): Promise<FindingInfo & { cleaned: string[] }> {
    const { watch, run } = this.known(config);
    return this.found(watch, post(`/v1/findings/${encodeURIComponent(finding)}/dismiss`, objectOf({ reason }), { agent: this.agent, run }));
  }

  private async found<T extends FindingInfo>(watch: DriftWatch, ask: Ask): Promise<T> {
    const { drift, ...finding } = understood<T & { drift?: DriftVerdict }>(await this.delivery.call(ask), true);
    watch.note(drift);
    return finding as unknown as T;
  }

  private known(config: RunnableConfig): { watch: DriftWatch; run: string } {
    const thread = needThread(config, 'tell of a finding');
    const found = this.threads.get(placeOf(thread, nsOf(config) ?? ''));
    if (!found) throw invalid(`thread ${thread} has no checkpoint of this saver yet, so nothing can be reported about it`);
    return found;
  }

  /** What is known of a thread. */
  private threadOf(thread: string, ns: string, run: string): { watch: DriftWatch; run: string } {
    const place = placeOf(thread, ns);
    let known = this.threads.get(place);
    if (!known) {
      known = { watch: new DriftWatch(this.delivery.settings.warn), run };
      known.watch.listen((drift) => this.onDrift?.(drift, { thread, ns }));
      this.threads.set(place, known);
      if (this.threads.size > mostThreads) this.threads.delete(this.threads.keys().next().value!);
    }
    return known;
  }

  async deleteThread(threadId: string): Promise<void> {
    await this.change('delete_thread', { thread: String(threadId) });
  }

  /** Deletes the checkpoints that runs have made, by the `run_id` in their metadata. */
  async deleteForRuns(runIds: string[]): Promise<void> {
    await this.change('delete_runs', { run_ids: runIds });
  }

  /** Copies all checkpoints and writes of a thread, under the same ids. */
  async copyThread(fromThreadId: string, toThreadId: string): Promise<void> {
    await this.change('copy_thread', { from: String(fromThreadId), to: String(toThreadId) });
  }

  /** Shortens threads. With the newest checkpoints stays what their delta channels are made of. */
  async prune(threadIds: string[], strategy: PruneStrategy = 'keep_latest'): Promise<void> {
    await this.change('prune', { threads: threadIds.map(String), strategy });
  }

  override async getDeltaChannelHistory(options: { config: RunnableConfig; channels: string[] }): Promise<Record<string, DeltaChannelHistory>> {
    const { config, channels } = options;
    const result: Record<string, DeltaChannelHistory> = {};
    if (channels.length === 0) return result;
    const thread = threadOf(config);
    if (thread === undefined) return Object.fromEntries(channels.map((channel) => [channel, { writes: [] }]));
    const answer = await this.ask<HistoryHead>('history', { thread, ns: nsOf(config) ?? '', checkpoint: getCheckpointId(config) ?? '', channels });
    for (const { channel, seed, writes } of answer.head.channels) {
      const loaded = seed && { seed: await this.load(answer.take(seed)) };
      result[channel] = { writes: await this.writes(writes, answer), ...loaded };
    }
    return result;
  }

  /** One checkpoint of an answer, whose other bytes come next in it. */
  private async tuple(head: TupleHead, from: Framed<unknown>, typed: Pick<Seen, 'channel' | 'value'>[]): Promise<CheckpointTuple> {
    const values: Record<string, unknown> = {};
    for (const { channel, value } of typed) setOwn(values, channel, await this.load(value));
    const checkpoint = { ...head.checkpoint, channel_values: values } as Checkpoint;
    const pendingWrites = await this.writes(head.writes, from);
    const sends = [];
    for (const send of head.sends) sends.push(await this.load(from.take(send)));
    if (checkpoint.v < 4 && head.parent !== null) this.migrate(checkpoint, sends);
    return {
      config: configOf(head.thread, head.ns, head.id),
      checkpoint,
      metadata: (await plain.loadsTyped('json', JSON.stringify(head.metadata))) as CheckpointMetadata,
      pendingWrites,
      ...(head.parent === null ? {} : { parentConfig: configOf(head.thread, head.ns, head.parent) }),
    };
  }

  /** Checkpoints of before version 4 have what tasks send in a channel. */
  private migrate(checkpoint: Checkpoint, sends: unknown[]): void {
    checkpoint.channel_values[TASKS] = sends;
    const versions = Object.values(checkpoint.channel_versions ?? {});
    checkpoint.channel_versions = { ...checkpoint.channel_versions, [TASKS]: versions.length > 0 ? maxChannelVersion(...versions) : this.getNextVersion(undefined) };
  }

  private async writes(heads: TaskHead[], from: Framed<unknown>): Promise<CheckpointPendingWrite[]> {
    const writes: CheckpointPendingWrite[] = [];
    for (const head of heads) writes.push([head.task, head.channel, await this.load(from.take(head))]);
    return writes;
  }

  /** Writes are on disk in the order of their calls, also where one takes longer to serialize or two requests: those of a task never before their checkpoint. */
  private inOrder<P, T>(prepared: Promise<P>, write: (prepared: P) => Promise<T>): Promise<T> {
    prepared.catch(() => undefined); // it is looked at when its turn has come
    const result = this.tail.then(() => prepared).then(write);
    this.tail = result.catch(() => undefined);
    return result;
  }

  private async putOnce(head: object, values: Channel[], carry: string[]): Promise<PutAnswer> {
    const heads = values.map(({ channel, type, data }) => ({ channel, type, length: data.length }));
    return understood<PutAnswer>(await this.send('put', frame({ ...head, values: heads, carry }, values.map(({ data }) => data))), true);
  }

  private dumpAll(channels: string[], values: Record<string, unknown>): Promise<Channel[]> {
    return Promise.all(channels.map(async (channel) => ({ channel, ...(await this.dump(values[channel])) })));
  }

  private async dump(value: unknown): Promise<Typed> {
    const [type, data] = await this.serde.dumpsTyped(value);
    return { type, data: typeof data === 'string' ? Buffer.from(data) : data };
  }

  private load(value: Typed): Promise<unknown> {
    return this.serde.loadsTyped(value.type, value.data);
  }

  private get delivery(): Delivery {
    return this.sidecar.delivery;
  }

  private path(method: string): string {
    return `/v1/agents/${this.agent}/graph/${method}`;
  }

  /** A framed call that changes something. Doing it twice does it once. */
  private send(method: string, body: Buffer): ReturnType<Delivery['call']> {
    return this.delivery.call({ method: 'POST', path: this.path(method), headers: { 'Content-Type': contentType }, body, write: true, repeatable: true });
  }

  private async change(method: string, body: unknown): Promise<void> {
    const headers = { 'Content-Type': 'application/json' };
    const answer = await this.delivery.call({ method: 'POST', path: this.path(method), headers, body: Buffer.from(JSON.stringify(body)), write: true, repeatable: true });
    understood(answer, true);
  }

  private async ask<Head>(method: string, body: unknown): Promise<Framed<Head>> {
    const headers = { 'Content-Type': 'application/json' };
    const answer = await this.delivery.call({ method: 'POST', path: this.path(method), headers, body: Buffer.from(JSON.stringify(body)), repeatable: true });
    return new Framed<Head>(answer.body);
  }
}

/**
 * Which channels are sent, and which the daemon takes from the parent, or without one from the rest of the thread.
 * Without `newVersions` all are new, as for LangGraph's own savers.
 */
function partition(checkpoint: Checkpoint, newVersions: ChannelVersions = checkpoint.channel_versions): { sent: string[]; carry: string[] } {
  const sent: string[] = [];
  const carry: string[] = [];
  for (const channel of Object.keys(checkpoint.channel_values)) {
    if (Object.hasOwn(newVersions, channel) || !Object.hasOwn(checkpoint.channel_versions, channel)) sent.push(channel);
    else carry.push(channel);
  }
  return { sent, carry };
}

async function plainOf(value: unknown): Promise<unknown> {
  const [, data] = await plain.dumpsTyped(value);
  return JSON.parse(Buffer.from(data).toString('utf8'));
}

/** A filter as the metadata would have it; what is undefined filters nothing. */
async function filterOf(filter: Record<string, unknown> | undefined): Promise<unknown> {
  const members = Object.entries(filter ?? {}).filter(([, value]) => value !== undefined);
  return members.length > 0 ? plainOf(Object.fromEntries(members)) : undefined;
}

/** A name of a thread and namespace. */
function placeOf(thread: string, ns: string): string {
  return JSON.stringify([thread, ns]);
}

function threadOf(config: RunnableConfig): string | undefined {
  const thread = config.configurable?.['thread_id'] as unknown;
  return thread === undefined || thread === null || thread === '' ? undefined : String(thread);
}

function needThread(config: RunnableConfig, what: string): string {
  const thread = threadOf(config);
  if (thread === undefined) throw invalid(`cannot ${what}: the config has no configurable.thread_id, which names the conversation; give one, as in { configurable: { thread_id: "1" } }`);
  return thread;
}

function nsOf(config: RunnableConfig): string | undefined {
  return config.configurable?.['checkpoint_ns'] as string | undefined;
}

function configOf(thread: string, ns: string, id: string): RunnableConfig {
  return { configurable: { thread_id: thread, checkpoint_ns: ns, checkpoint_id: id } };
}

/** A member that may be called __proto__. */
function setOwn(object: Record<string, unknown>, name: string, value: unknown): void {
  Object.defineProperty(object, name, { value, writable: true, enumerable: true, configurable: true });
}
