// LangGraph's own suite for checkpointers, over a real daemon.
import { deltaChannelHistoryTests, specTest } from '@langchain/langgraph-checkpoint-validation';
import { SidecarSaver } from 'ckptsidecar/langgraph';

import { Daemon } from './daemon.mjs';

const daemon = new Daemon();
let agents = 0;

const initializer = {
  checkpointerName: 'ckptsidecar',
  beforeAllTimeout: 60_000,
  beforeAll: () => daemon.start(),
  afterAll: () => daemon.remove(),
  createCheckpointer: () => new SidecarSaver({ socket: daemon.socket, agent: `validation-${++agents}` }), // none sees what another has stored
  destroyCheckpointer: (saver) => saver.close(),
};

specTest(initializer);
describe('delta channels', () => {
  const own = new Daemon();
  beforeAll(() => own.start(), 60_000);
  afterAll(() => own.remove());
  deltaChannelHistoryTests({ ...initializer, createCheckpointer: () => new SidecarSaver({ socket: own.socket, agent: `delta-${++agents}` }) });
});
