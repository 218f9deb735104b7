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

/** A run cannot begin; `plan` says why. */
export class PlanRefused extends SidecarError {
  constructor(
    readonly plan: Plan,
    code: 'unsafe' | 'uncertain_operation' = 'unsafe',
    message = plan.reasons.join(' '),
  ) {
    super(code, message);
  }
}

/** A person must decide first. The text has three lines: what, the evidence, and the command that answers. `plan` lists the uncertain operations. */
export class NeedsOperator extends PlanRefused {
  /** about the operation of a key, or the first that needs a person; `refused` is what the daemon said, for one of an earlier life of the run */
  constructor(plan: Plan, key?: string, refused?: string) {
    super(plan, 'uncertain_operation', threeLines(plan, key, refused));
  }
}

function threeLines(plan: Plan, key: string | undefined, refused: string | undefined): string {
  const run = `run ${plan.run} of agent ${plan.agent}`;
  const found = plan.uncertain_operations.filter((o) => key === undefined || o.key === key);
  const asked = found.find((o) => o.prompt) ?? found[0];
  let [what, why, command] = [`A person must decide how ${run} goes on: the verdict is ${plan.verdict}.`, plan.reasons.join(' '), 'ckptsidecar prompts'];
  if (asked) {
    const open = asked.status === 'open';
    what = open ? `Operation ${asked.key} of ${run} is open: its code has not said how it ended.` : `Nobody knows whether operation ${asked.key} of ${run} took effect: it is not repeated by itself.`;
    const began = `Attempt ${asked.attempt} began${asked.started_at ? ` at ${asked.started_at}` : ''}`;
    why = asked.error ? `${began}: ${asked.error}` : `${began}, and its end was never recorded.`;
    if (plan.verdict === 'offline') why += ' Start the daemon first: ckptsidecar serve.';
    command = resolveCommand(plan, asked.key);
  } else if (refused !== undefined && key !== undefined) {
    what = `Operation ${key} of ${run} did not begin: nobody knows whether it took effect in an earlier life of the run.`;
    [why = refused, command = command] = refused.split(' Find out whether it took effect, then run: ');
  } else if (plan.prompt) {
    command = `ckptsidecar prompts answer ${plan.prompt.id.slice(0, 13)} resume|reinitialize|abandon`;
  }
  return [what, why.replace(/\s+/g, ' ').trim(), command].join('\n');
}

function resolveCommand(plan: Plan, key: string): string {
  return `ckptsidecar operation resolve ${plan.agent} ${shellWord(key)} it_did|it_did_not|repeat${plan.run === 'main' ? '' : ` --run ${shellWord(plan.run)}`}`;
}

function shellWord(word: string): string {
  return /^[A-Za-z0-9._\-:/@%+=,]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
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
