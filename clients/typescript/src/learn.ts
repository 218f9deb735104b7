import type { Core } from './core.js';
import { revive } from './decode.js';
import { isSidecarError } from './errors.js';
import { understood } from './problem.js';
import { get, queryOf } from './requests.js';
import { keep } from './step.js';
import type { OperationInfo, StepInfo } from './wire.js';

const mostPages = 5; // of each list

/** Learns which steps and operations earlier processes of a run have done, so that none is done twice while the daemon is away. */
export async function learn(core: Core): Promise<void> {
  for (const what of ['step', 'operation'] as const) {
    try {
      if (!(await learnAll(core, what))) core.allKnown = false;
    } catch (error) {
      if (!isSidecarError(error)) throw error;
      core.allKnown = false;
    }
  }
}

/** Whether all of them were read. */
async function learnAll(core: Core, what: 'step' | 'operation'): Promise<boolean> {
  let before: string | null = null;
  for (let page = 0; page < mostPages; page++) {
    const ask = get(`${core.path}/${what}s`, queryOf({ status: 'succeeded', before, limit: 1000 }));
    const list = understood<Record<string, (StepInfo | OperationInfo)[]> & { next: string | null }>(await core.delivery.call(ask), false);
    for (const { key, result } of list[`${what}s`]!) keep(core, `${what} ${key}`, revive(result));
    before = list.next;
    if (before === null) return true;
  }
  return false;
}
