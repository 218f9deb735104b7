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
  /** about the operation of a key, or the first that needs a person */
  constructor(plan: Plan, key?: string) {
    super(plan, 'uncertain_operation', threeLines(plan, key));
  }
}

function threeLines(plan: Plan, key: string | undefined): string {
  const of = `run ${plan.run} of ${plan.agent}`;
  const found = plan.uncertain_operations.filter((o) => key === undefined || o.key === key);
  const asked = found.find((o) => o.prompt) ?? found[0];
  if (!asked) {
    const command = plan.prompt ? `ckptsidecar prompts answer ${plan.prompt.id.slice(0, 13)} resume` : 'ckptsidecar prompts';
    return [`a person must decide how ${of} goes on`, `evidence: ${oneLine(plan.reasons.join(' '))}`, `to answer: ${command}`].join('\n');
  }
  const named = asked.name === asked.key ? JSON.stringify(asked.key) : `${asked.name} (${JSON.stringify(asked.key)})`;
  const others = new Set(plan.uncertain_operations.map((o) => o.key)).size - 1;
  const more = others > 0 ? `, and the same of ${others} more` : '';
  const began = `attempt ${asked.attempt}${asked.started_at ? ` that began at ${asked.started_at}` : ''}`;
  const open = asked.status === 'open';
  const what = open ? `operation ${named} of ${of} is open: its code has not said how it ended${more}` : `a person must say whether operation ${named} of ${of} took effect${more}`;
  const evidence = open ? `${began} has no end` : `${began} is uncertain: ${asked.error ?? 'its process ended in it'}`;
  const serve = plan.verdict === 'offline' ? 'ckptsidecar serve, then: ' : '';
  return [what, `evidence: ${oneLine(evidence)}`, `to answer: ${serve}${resolveCommand(plan, asked.key)}`].join('\n');
}

function resolveCommand(plan: Plan, key: string): string {
  return `ckptsidecar operation resolve ${plan.agent} ${shellWord(key)} it_did|it_did_not|repeat${plan.run === 'main' ? '' : ` --run ${shellWord(plan.run)}`}`;
}

function shellWord(word: string): string {
  return /^[A-Za-z0-9._\-:/@%+=,]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function oneLine(text: string): string {
  return text.replace(/\s*\n\s*/g, ' ');
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
