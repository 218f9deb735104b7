import { closeSync, openSync, readFileSync } from 'node:fs';

import { withState } from './checkpoint.js';
import { revive } from './decode.js';
import { messageOf } from './errors.js';
import type { Plan } from './plan.js';
import type { Checkpoint, PlanInfo } from './wire.js';

/**
 * The plan that `ckptsidecar exec` hands over to the agent that it starts: it
 * has claimed the run already. Undefined where there is none of this run, and
 * for all but the first time, also in other processes of the command.
 */
export function execPlan<S>(name: { agent: string; run: string }, warn: (message: string) => void): Plan<S> | undefined {
  const { CKPTSIDECAR_PLAN: file, CKPTSIDECAR_AGENT: agent, CKPTSIDECAR_RUN: run } = process.env;
  if (!file || agent !== name.agent || run !== name.run) return undefined;
  try {
    const plan = read<S>(file);
    if (String(plan.epoch) !== process.env['CKPTSIDECAR_EPOCH']) return undefined; // of a later attempt
    return take(file, plan.epoch) ? plan : undefined;
  } catch (error) {
    warn(`the plan ${file} cannot be read, so the run is resumed again: ${messageOf(error)}`);
    return undefined;
  }
}

/** Whether nobody has begun with a plan yet. It leaves a file beside that of the plan, which `exec` removes. */
function take(file: string, epoch: number): boolean {
  try {
    closeSync(openSync(`${file}.taken-${epoch}`, 'wx', 0o600));
    return true;
  } catch {
    return false;
  }
}

type Written = PlanInfo & { checkpoint: (Checkpoint & { state?: unknown; state_base64?: string }) | null };

function read<S>(file: string): Plan<S> {
  const plan = JSON.parse(readFileSync(file, 'utf8')) as Written;
  const { checkpoint } = plan;
  const bytes = checkpoint?.state_base64 === undefined ? Buffer.from(JSON.stringify(checkpoint?.state ?? null)) : Buffer.from(checkpoint.state_base64, 'base64');
  for (const step of plan.completed_steps) step.result = revive(step.result) as typeof step.result;
  for (const step of plan.interrupted_steps) step.args = revive(step.args) as typeof step.args;
  return { ...plan, checkpoint: checkpoint && withState<S>(checkpoint, bytes), offline: false };
}

/** Whether `ckptsidecar exec` looks after a run. */
export function supervised(name: { agent: string; run: string }): boolean {
  const { CKPTSIDECAR_PLAN: file, CKPTSIDECAR_AGENT: agent, CKPTSIDECAR_RUN: run } = process.env;
  return file !== undefined && agent === name.agent && run === name.run;
}
