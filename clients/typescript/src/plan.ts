import { cutState, type Stored, withState } from './checkpoint.js';
import type { Answer } from './ask.js';
import { revive } from './decode.js';
import { SidecarError } from './errors.js';
import { understood } from './problem.js';
import type { Checkpoint, PlanInfo, Program } from './wire.js';

/** How to go on with a run. */
export type Plan<S = any> = PlanInfo & {
  /** what to load, with its state; null for nothing */
  checkpoint: Stored<S> | null;
  /** made from the spool alone, because the daemon is away */
  offline: boolean;
};

/** A run cannot begin before a person has acted; `plan` says why and what to do. */
export class PlanRefused extends SidecarError {
  constructor(readonly plan: Plan) {
    super(plan.verdict === 'ask' ? 'ask' : 'unsafe', [...plan.reasons, whatToDo(plan)].join(' '));
  }
}

function whatToDo(plan: Plan): string {
  if (plan.offline) return 'Start the daemon ("ckptsidecar serve") to decide it.';
  if (plan.uncertain_operations.length === 0) return `See "ckptsidecar resume ${plan.agent} --run ${plan.run} --dry-run" and "ckptsidecar prompts list".`;
  return `Find out and say so with "ckptsidecar operation resolve ${plan.agent} --run ${plan.run} KEY succeeded|failed", or give agent.run a function resolve.`;
}

export function planOf<S>(answer: Answer): Plan<S> {
  const { body, state } = cutState(answer);
  const plan = understood<PlanInfo & { checkpoint: Checkpoint | null }>({ ...answer, body }, true);
  for (const step of plan.completed_steps) step.result = revive(step.result) as typeof step.result;
  for (const step of plan.interrupted_steps) step.args = revive(step.args) as typeof step.args;
  return { ...plan, checkpoint: plan.checkpoint && withState<S>(plan.checkpoint, state ?? Buffer.alloc(0)), offline: false };
}

/** What of a checkpoint's program has not run yet. */
export function programRest(program: Program | undefined): Plan['program'] {
  if (!program) return null;
  const { source, executed } = program;
  return { executed, remaining: Buffer.from(source, 'utf8').subarray(executed).toString('utf8') };
}
