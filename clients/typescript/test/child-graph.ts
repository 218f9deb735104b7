// A graph of LangGraph that writes down its effects, and goes on where it was: EFFECTS THREADS.
// Each line is `effect THREAD NODE` when a node does what cannot be undone, and `kept THREAD NODE` when its writes are on disk.
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

import { Annotation, Command, END, interrupt, START, StateGraph } from '@langchain/langgraph';
import type { RunnableConfig } from '@langchain/core/runnables';
import type { PendingWrite } from '@langchain/langgraph-checkpoint';

import { SidecarSaver } from 'ckptsidecar/langgraph';

const [effects, threads] = [process.argv[2]!, Number(process.argv[3])];
const State = Annotation.Root({ done: Annotation<string[]>({ reducer: (a, b) => a.concat(b), default: () => [] }) });
const Sub = Annotation.Root({ done: Annotation<string[]>({ reducer: (a, b) => a.concat(b), default: () => [] }), inner: Annotation<string>() });

const note = (what: string, config: RunnableConfig, node: string): void => appendFileSync(effects, `${what} ${config.configurable!['thread_id']} ${node}\n`);

/**
 * Says when what a node has done is on disk, so that it is not done again: in the graph itself that is when its writes are. In a subgraph it
 * is when the next checkpoint is, because LangGraph 1.4.17 never takes kept writes of a subgraph's task for done (its `skipDoneTasks`).
 * Checkpoints of the subgraph take as long as on a busy machine, longer than a node works.
 */
class NotingSaver extends SidecarSaver {
  override async put(...args: Parameters<SidecarSaver['put']>): Promise<RunnableConfig> {
    const [config, checkpoint] = args;
    const nested = Boolean(config.configurable?.['checkpoint_ns']);
    if (nested) await sleep(Math.random() * 60);
    const kept = await super.put(...args);
    const last = (checkpoint.channel_values['done'] as string[] | undefined)?.at(-1);
    if (nested && last !== undefined) note('kept', config, last);
    return kept;
  }

  override async putWrites(config: RunnableConfig, writes: PendingWrite[], taskId: string, taskPath?: string): Promise<void> {
    await super.putWrites(config, writes, taskId, taskPath);
    if (config.configurable?.['checkpoint_ns']) return;
    for (const [channel, value] of writes) if (channel === 'done' && (value as string[]).length > 0) note('kept', config, (value as string[])[0]!);
  }
}

function node(name: string) {
  return async (_: unknown, config: RunnableConfig): Promise<{ done: string[] }> => {
    note('effect', config, name);
    await sleep(Math.random() * 20);
    return { done: [name] };
  };
}

function ask(name: string) {
  return async (_: unknown, config: RunnableConfig): Promise<{ done: string[] }> => {
    const answer = interrupt<string, string>(`may ${name}?`);
    note('effect', config, `${name}:${answer}`);
    return { done: [`${name}:${answer}`] };
  };
}

const inner = new StateGraph(Sub)
  .addNode('s1', node('s1'))
  .addNode('s2', node('s2'))
  .addNode('s3', async () => ({ inner: 'seen' }))
  .addEdge(START, 's1')
  .addEdge('s1', 's2')
  .addEdge('s2', 's3')
  .addEdge('s3', END)
  .compile();

const saver = new NotingSaver();
const graph = new StateGraph(State)
  .addNode('a', node('a'))
  .addNode('b1', node('b1'))
  .addNode('b2', node('b2'))
  .addNode('b3', node('b3'))
  .addNode('sub', async (_: unknown, config: RunnableConfig) => {
    const { done } = await inner.invoke({ done: [] }, config);
    return { done: done.map((name: string) => `${name} of sub`) };
  })
  .addNode('q1', ask('q1'))
  .addNode('q2', ask('q2'))
  .addNode('z', node('z'))
  .addEdge(START, 'a')
  .addEdge('a', 'b1')
  .addEdge('a', 'b2')
  .addEdge('a', 'b3')
  .addEdge(['b1', 'b2', 'b3'], 'sub')
  .addEdge('sub', 'q1')
  .addEdge('sub', 'q2')
  .addEdge(['q1', 'q2'], 'z')
  .addEdge('z', END)
  .compile({ checkpointer: saver });

for (let thread = 0; thread < threads; thread++) {
  const config = { configurable: { thread_id: `t${thread}` }, durability: 'sync' as const };
  for (;;) {
    const state = await graph.getState(config);
    if (!state.createdAt) {
      await graph.invoke({ done: [] }, config);
      continue;
    }
    // The state has what a task has written already, before its checkpoint is made; `next` is empty then, too.
    const kept = (await saver.getTuple(config))?.checkpoint.channel_values['done'] as string[] | undefined;
    if (kept?.includes('z')) break;
    const open = state.tasks.flatMap((task) => task.interrupts);
    const resume = Object.fromEntries(open.map((i) => [i.id!, 'yes']));
    await graph.invoke(open.length > 0 ? new Command({ resume }) : null, config);
  }
}
console.log('all done');
saver.close();
