import { parentPort, workerData } from 'node:worker_threads';

import { type SharedRun, Sidecar } from 'ckptsidecar';

const { shared, part } = workerData as { shared: SharedRun; part: number };
const run = new Sidecar().join(shared);
const done: string[] = [];
for (let n = 0; n < 5; n++) {
  done.push(await run.step(`part-${part}-${n}`, () => `${part}.${n}`));
  done.push(await run.step(`common-${n}`, () => `common.${n}`).catch(() => 'raced'));
  await run.save({ part, n });
}
parentPort!.postMessage(done);
