// Works until it is asked to stop. Its arguments say how it begins, and how it takes that.
import { setTimeout as sleep } from 'node:timers/promises';

import { type Run, Sidecar } from 'ckptsidecar';

const [name, how] = process.argv.slice(2) as [string, string];
const agent = new Sidecar().agent(name);
const begin = (run: Run): void => {
  run.state = { n: 0 };
  console.log('ready');
};
const count = async (run: Run): Promise<never> => {
  begin(run);
  for (;;) {
    await run.step(`s${run.state.n}`, () => sleep(30));
    run.state.n++;
  }
};
switch (how) {
  case 'step':
    await agent.run(count);
    break;
  case 'deaf': // it looks at nothing
    await agent.run(async (run) => (begin(run), sleep(60_000)), { stopWithin: 200 });
    break;
  case 'graceful':
    await agent
      .run(async (run) => {
        begin(run);
        while (!run.signal.aborted) await sleep(5);
        run.state = { tidied: true };
        return 'not what it ends with';
      })
      .catch((error: { code: string }) => console.log(error.code));
    break;
  case 'own': // somebody else listens, so the process goes on
    process.on('SIGTERM', () => setTimeout(() => process.exit(7), 500));
    await agent.run(count).catch((error: { code: string }) => console.log(error.code));
    break;
  case 'explicit': {
    const run = await agent.start();
    begin(run);
    run.state = { n: 'explicit' };
    await sleep(60_000);
    break;
  }
  case 'idle': // nothing keeps it
    await agent.run((run) => begin(run));
    await agent.start({ run: 'left', autosave: 10 });
    break;
  case 'late': // a save that is waited for keeps the process, whatever else is on the wire
    await agent.start({ heartbeatEvery: 1 });
    await sleep(20);
    for (let n = 0; n < 50; n++) await agent.save({ n });
    console.log('saved');
    break;
}
