// An agent that asks a person, and notes the answer in a file.
import { appendFileSync } from 'node:fs';

import { Sidecar } from 'ckptsidecar';

const [log] = process.argv.slice(2) as [string];

await new Sidecar().agent('deployer').run(
  async (run) => {
    await run.save({ built: true });
    const schema = { type: 'object', required: ['env'], properties: { env: { enum: ['prod', 'test'] } } };
    const { choice, data } = await run.ask<{ env: string }>('Deploy to production?', { key: 'deploy-1', choices: ['approve', 'reject'], schema, expires: '1h' });
    appendFileSync(log, `${choice} ${data.env}\n`);
  },
  { initial: {}, force: true },
);
