// An agent that is killed at any moment: a loop of steps and operations. What
// they do to the world, and what was reported of it, are lines of one file.
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

import { Sidecar } from 'ckptsidecar';

const [log] = process.argv.slice(2) as [string];
const effect = (what: string): void => appendFileSync(log, `effect ${what}\n`);
const report = (what: string): void => appendFileSync(log, `report ${what}\n`);
const pause = (most = 12): Promise<void> => sleep(Math.random() * most);

await new Sidecar().agent('looper').run(
  async (run) => {
    report(`begin ${run.plan?.verdict} ${run.state.n}`);
    for (let n = run.state.n; n < 40; n = run.state.n) {
      const step = await run.step(`step-${n}`, async () => {
        await pause();
        effect(`step-${n}`);
        await pause();
        return { n, token: `t${n}` };
      });
      if (step.n !== n || step.token !== `t${n}`) throw new Error(`step ${n} gave ${JSON.stringify(step)}`);
      report(`step-${n}`);
      if (n % 3 === 0) {
        await run.operation(`operation-${n}`, run.state, async () => {
          await pause(30);
          effect(`operation-${n}`);
          await pause(30);
        });
        report(`operation-${n}`);
      }
      run.state.n = n + 1;
      run.state.log.push(step.token);
      await run.save();
    }
    return run.state.log;
  },
  { initial: { n: 0, log: [] as string[] } },
);
report('end');
