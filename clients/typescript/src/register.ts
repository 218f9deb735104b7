import type { Until } from './ask.js';
import type { Delivery } from './delivery.js';
import { milliseconds, onTheWire } from './duration.js';
import { understood } from './problem.js';
import { objectOf, post } from './requests.js';
import type { RunOptions } from './options.js';
import type { RunInfo } from './wire.js';

export interface RunName {
  agent: string;
  run: string;
}

/** Registers a run and what a plan does not take: what it is. Answers its epoch. */
export async function register<S>(delivery: Delivery, name: RunName, o: RunOptions<S>, until: Until): Promise<number> {
  const body = objectOf({
    run: name.run,
    pid: process.pid,
    ...timeouts(o),
    workflow: o.workflow,
    goal: o.goal,
    parent_run: o.parentRun,
    fork_from: o.forkFrom,
    external_session: o.externalSession,
    labels: o.labels,
  });
  const answer = await delivery.afterSpool(name, post(`/v1/agents/${name.agent}/runs`, body, name), until);
  return understood<RunInfo>(answer, true).epoch;
}

export function timeouts<S>(options: RunOptions<S>): { heartbeat_timeout: string; progress_timeout?: string } {
  const { heartbeatTimeout = 30_000, progressTimeout } = options;
  return {
    heartbeat_timeout: onTheWire(milliseconds(heartbeatTimeout, 'heartbeatTimeout')),
    ...(progressTimeout === undefined ? {} : { progress_timeout: onTheWire(milliseconds(progressTimeout, 'progressTimeout')) }),
  };
}
