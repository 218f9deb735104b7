// Goes on counting in a session, one change for each number, and says each when it is kept.
import { Sidecar } from 'ckptsidecar';
import { SidecarSession } from 'ckptsidecar/openai-agents';

const session = new SidecarSession({ sessionId: 'count', sidecar: new Sidecar({ deadline: '30s', startDeadline: '30s' }) });
for (let n = (await session.getItems()).length; ; n++) {
  await session.applyHistoryTransaction({ operationId: `number ${n}`, transaction: { type: 'append_items', items: [{ type: 'message', role: 'user', content: `${n}` }] } });
  process.stdout.write(`${n}\n`);
}
