// Delta channels are replayed from the writes of tasks, so the order of writes is part of the state.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Annotation, DeltaChannel, END, MemorySaver, START, StateGraph } from '@langchain/langgraph';

import { SidecarSaver } from 'ckptsidecar/langgraph';

import { World } from './world.js';

process.env['LANGSMITH_TRACING'] = 'false';

const State = Annotation.Root({
  log: () => new DeltaChannel<string[], string[]>((state, writes) => state.concat(...writes), { initialValueFactory: () => [] }),
});
const writers = ['alpha', 'beta', 'gamma', 'delta'];

function parallel(checkpointer: SidecarSaver | MemorySaver) {
  const graph = new StateGraph(State) as StateGraph<typeof State, { log: string[] }, { log: string[][] | string[] }, string>;
  for (const name of writers) {
    graph.addNode(name, () => ({ log: [name] }));
    graph.addEdge(START, name);
    graph.addEdge(name, 'last');
  }
  graph.addNode('last', ({ log }) => ({ log: [`after ${log.join(' ')}`] }));
  graph.addEdge('last', END);
  return graph.compile({ checkpointer });
}

test('what four parallel writers put into a delta channel reloads in the order in which the graph has seen it', async (t) => {
  const world = await World.start();
  const saver = new SidecarSaver({ socket: world.socket, spool: { folder: world.spool } });
  t.after(() => saver.close());
  for (const [name, checkpointer] of [['ours', saver], ["LangGraph's own", new MemorySaver()]] as const) {
    const graph = parallel(checkpointer);
    for (let n = 0; n < 10; n++) {
      const config = { configurable: { thread_id: `delta ${n}` } };
      const live = (await graph.invoke({ log: ['begin'] }, config)).log;
      assert.equal(live.length, 6);
      assert.deepEqual((await graph.getState(config)).values.log, live, `getState, ${name}`);
      const history = [];
      for await (const state of graph.getStateHistory(config)) history.push(state.values.log ?? []);
      assert.deepEqual(history[0], live, `the history, ${name}`);
      assert.deepEqual(history[1], live.slice(0, 5), `the history before the last step, ${name}`);
    }
  }
});
