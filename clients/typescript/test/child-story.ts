// An agent that pays. Where the file `die` is, it is killed once, before or after the charge.
import { appendFileSync, existsSync, unlinkSync } from 'node:fs';

import { Sidecar } from 'ckptsidecar';

const [payments, die, when] = process.argv.slice(2) as [string, string, string];
const paid = await new Sidecar({ deadline: 500, startDeadline: 500, autostart: false }).agent('shop').run((run) =>
  run.operation('pay-42', undefined, () => {
    const dies = existsSync(die);
    if (dies) unlinkSync(die);
    if (dies && when === 'before') process.kill(process.pid, 'SIGKILL');
    appendFileSync(payments, 'x\n');
    if (dies) process.kill(process.pid, 'SIGKILL');
    return { receipt: 5 };
  }),
);
console.log('paid', JSON.stringify(paid));
