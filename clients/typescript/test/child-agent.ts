// An agent that works for a while without knowing whether there is a daemon.
import { NotDone, Sidecar } from 'ckptsidecar';

const [name, count, deadline] = process.argv.slice(2) as [string, string, string];
const sidecar = new Sidecar({ deadline: Number(deadline), startDeadline: Number(deadline), onWarning: () => undefined });
const beyond: number[] = [];
const verdict = await sidecar.agent(name).run(
  async (run) => {
    run.state = { n: 0 };
    for (let n = 1; n <= Number(count); n++) {
      const began = performance.now();
      await run.save({ n });
      beyond.push(performance.now() - began - (n === 1 ? Number(deadline) : 0)); // the first one waits for it
    }
    await run.step('a step', () => ({ cost: 5 }), { args: { x: 1 } });
    await run.operation('an operation', run.state, () => 'done', { offline: 'allow' });
    await run.operation('a failing one', run.state, () => Promise.reject(new NotDone('no')), { offline: 'allow' }).catch((error: { state: unknown }) => run.event('failed', error.state));
    await run.event('an event', { n: 1 });
    return run.plan?.offline;
  },
  { run: 'offline' },
);
console.log(JSON.stringify({ offline: verdict, beyond }));
