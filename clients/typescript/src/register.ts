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

/** The claim of a run: `exec` has made it, and knows how often it sends heartbeats, or this process. */
export interface Claim {
  epoch: number;
  exec: boolean;
}

/** Registers a run and what a plan does not take: what it is. Answers its epoch. */
export async function register<S>(delivery: Delivery, name: RunName, o: RunOptions<S>, until: Until, claim?: Claim): Promise<number> {
  const body = objectOf({
    run: name.run,
    pid: process.pid,
    epoch: claim?.epoch,
    ...timeouts(o),
    ...(claim?.exec ? { heartbeat_timeout: undefined } : {}),
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
