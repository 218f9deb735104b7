// An agent that pays, and then ends in the way that it was told.
import { appendFileSync } from 'node:fs';

import { Sidecar } from 'ckptsidecar';

const [payments, how, options] = process.argv.slice(2) as [string, string, string];
await new Sidecar({ onWarning: () => undefined }).agent('shop').run(
  async (run) => {
    await run.operation(
      'pay-42',
      { order: 42 },
      async ({ key }) => {
        appendFileSync(payments, `${key}\n`);
        if (how === 'kill') process.kill(process.pid, 'SIGKILL');
        if (how === 'exit') process.exit(3);
        if (how === 'int') process.kill(process.pid, 'SIGINT');
        await new Promise((done) => setTimeout(done, 60_000));
      },
      JSON.parse(options) as object,
    );
  },
  { stopWithin: 100 },
);
