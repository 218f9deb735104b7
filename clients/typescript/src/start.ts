import { Behind } from './backlog.js';
import { stored } from './checkpoint.js';
import type { Delivery } from './delivery.js';
import { isSidecarError, messageOf, SidecarError } from './errors.js';
import { execPlan } from './exec.js';
import { offlinePlan } from './offline.js';
import { type Check, foundOf } from './once.js';
import { resolveOperation } from './operation.js';
import { NeedsOperator, type Plan, planOf, PlanRefused, programRest } from './plan.js';
import { passes } from './problem.js';
import { get, objectOf, post } from './requests.js';
import type { RunOptions } from './options.js';
import { register, type RunName, timeouts } from './register.js';
import { Run } from './run.js';
import type { Saver } from './saver.js';
import { Unreached } from './unreached.js';

/** The runs that go on in this process. */
const active = new Map<string, object>();

/** Claims a run and makes it ready to go on. */
export async function start<S>(delivery: Delivery, saver: Saver, name: RunName, options: RunOptions<S>): Promise<Run<S>> {
  const key = [delivery.settings.socket ?? '', name.agent, name.run].join('|');
  if (active.has(key) && !options.force) {
    throw new SidecarError('conflict', `run ${name.run} of agent ${name.agent} is already running in this process: name another run, or take it over with force`);
  }
  const claim = {};
  active.set(key, claim);
  const over = (): void => {
    if (active.get(key) === claim) active.delete(key);
  };
  try {
    const run = new Run<S>(delivery, saver, name, await planned<S>(delivery, name, options), { ...options, over });
    await run.learn();
    return run;
  } catch (error) {
    over();
    throw error;
  }
}

async function planned<S>(delivery: Delivery, name: RunName, options: RunOptions<S>): Promise<Plan<S>> {
  const given = execPlan<S>(name, delivery.settings.warn);
  if (given) {
    if (given.verdict === 'fresh' && options.forkFrom) return forked<S>(delivery, given, options, options.forkFrom);
    await describe(delivery, given, options);
    return given;
  }
  let plan = await claim<S>(delivery, name, options);
  if (plan.verdict === 'ask' && options.resolve && (await resolved(delivery, plan, options.resolve))) plan = await claim<S>(delivery, name, options);
  if (plan.verdict === 'ask' || (plan.offline && plan.uncertain_operations.some((o) => !o.idempotent && !o.check))) throw new NeedsOperator(plan);
  if (plan.verdict === 'unsafe') throw new PlanRefused(plan);
  if (plan.verdict === 'fresh' && !plan.offline && describes(options)) {
    const until = performance.now() + delivery.settings.deadline;
    await register(delivery, name, options, () => until, { epoch: plan.epoch, exec: false });
    if (options.forkFrom) plan = { ...(await claim<S>(delivery, name, options)), verdict: 'fresh' }; // with the fork's checkpoint
  }
  return plan;
}

/** Makes a run that `exec` has claimed a fork: it begins with the checkpoint. */
async function forked<S>(delivery: Delivery, given: Plan<S>, options: RunOptions<S>, from: string): Promise<Plan<S>> {
  const until = performance.now() + delivery.settings.deadline;
  await register(delivery, given, options, () => until, { epoch: given.epoch, exec: true });
  const checkpoint = stored<S>(await delivery.call(get(`/v1/checkpoints/${encodeURIComponent(from)}`)), false);
  const reasons = [`Load checkpoint ${checkpoint.id}, from which the run was forked.`];
  return { ...given, reasons, checkpoint, program: programRest(checkpoint.program) };
}

/** Says what a run is for that `exec` has claimed. The run goes on also if the daemon has just gone away. */
async function describe<S>(delivery: Delivery, plan: Plan<S>, options: RunOptions<S>): Promise<void> {
  if (!describes(options) && options.progressTimeout === undefined) return;
  const { deadline, failOpen, warn } = delivery.settings;
  const until = performance.now() + deadline;
  try {
    await register(delivery, plan, { ...options, forkFrom: undefined }, () => until, { epoch: plan.epoch, exec: true });
  } catch (error) {
    if (!failOpen || options.needDaemon || !isSidecarError(error) || !passes(error, true)) throw error;
    warn(`run ${plan.run} of agent ${plan.agent} has no description, because the daemon is away: ${messageOf(error)}`);
  }
}

/** Whether the agent's own code knew what became of some operation. */
async function resolved(delivery: Delivery, plan: Plan, resolve: Check): Promise<boolean> {
  let any = false;
  for (const operation of plan.uncertain_operations) {
    if (!operation.prompt && (operation.idempotent || operation.check)) continue; // that asks no person
    const found = foundOf(await resolve(operation));
    if (!found) continue;
    await resolveOperation(delivery, plan, operation, found);
    any = true;
  }
  return any;
}

async function claim<S>(delivery: Delivery, name: RunName, options: RunOptions<S>): Promise<Plan<S>> {
  const { reason = options.leaveUncertain, force, leaveUncertain } = options;
  const body = objectOf({ pid: process.pid, ...timeouts(options), reason, force: force || undefined, leave_uncertain: leaveUncertain === undefined ? undefined : true });
  const { deadline, startDeadline, timeout, failOpen } = delivery.settings;
  const began = performance.now();
  // One that was never there is not waited for as long as one that is expected back, and a spool that empties is waited for longer.
  const until = (error?: SidecarError): number => {
    if (error instanceof Behind) return began + Math.max(timeout, startDeadline);
    return began + (error instanceof Unreached && error.missing ? Math.min(deadline, startDeadline) : startDeadline);
  };
  try {
    return planOf<S>(await delivery.afterSpool(name, post(`/v1/agents/${name.agent}/runs/${name.run}/resume`, body, name), until));
  } catch (error) {
    if (!failOpen || options.needDaemon || !isSidecarError(error) || !passes(error, true)) throw error;
    const plan = await offlinePlan<S>(delivery, name, error);
    if (options.forkFrom && !plan.checkpoint) throw error; // only the daemon has what the run is to begin with
    return plan;
  }
}

function describes<S>(o: RunOptions<S>): boolean {
  return [o.workflow, o.goal, o.parentRun, o.forkFrom, o.externalSession, o.labels].some((value) => value !== undefined);
}
