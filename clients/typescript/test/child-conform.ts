// The program of LangGraph's checkpointer for clients/conformance/conformance.py.
import { createInterface } from 'node:readline';

import { emptyCheckpoint, uuid6 } from '@langchain/langgraph-checkpoint';
import { SidecarSaver } from 'ckptsidecar/langgraph';

const saver = new SidecarSaver({ deadline: 60_000, startDeadline: 60_000 });
let clock = 0;

async function newest(thread: string) {
  const config = { configurable: { thread_id: thread, checkpoint_ns: '' } };
  const found = await saver.getTuple(config);
  return { config: found?.config ?? config, values: (found?.checkpoint.channel_values['values'] as string[] | undefined) ?? [] };
}

async function append(thread: string, value: string): Promise<void> {
  const { config, values } = await newest(thread);
  const versions = { values: values.length + 1 };
  const checkpoint = { ...emptyCheckpoint(), id: uuid6(clock++), channel_values: { values: [...values, value] }, channel_versions: versions };
  await saver.put(config, checkpoint, { source: 'loop', step: values.length, parents: {} }, versions);
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line) as { do: string; session: string; value: string };
  let answer: object = {};
  if (command.do === 'hello') answer = { adapter: 'ckptsidecar/langgraph', agent: 'langgraph', shared: false, remove: true };
  else if (command.do === 'append') await append(command.session, command.value);
  else if (command.do === 'read') answer = { values: (await newest(command.session)).values };
  else await saver.deleteThread(command.session);
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
saver.close();
