import type { Ask } from './ask.js';
import { Autosave } from './autosave.js';
import { SetAside } from './backlog.js';
import type { Delivery } from './delivery.js';
import { Core } from './core.js';
import type { Drift, DriftVerdict, Report } from './drift.js';
import { type Duration, milliseconds } from './duration.js';
import { encode } from './encode.js';
import { isSidecarError, messageOf, SidecarError } from './errors.js';
import { away, beginOperation, doOperation, endBegins, needsOperator, type OpenOperation, type OperationOptions } from './operation.js';
import type { RunOptions } from './options.js';
import type { Plan } from './plan.js';
import { Heartbeat } from './heartbeat.js';
import { learn } from './learn.js';
import { doneBefore } from './offline.js';
import { passes, understood } from './problem.js';
import { type Answered, answered, expiry, type QuestionOptions, Unanswered, wait } from './question.js';
import { checkAgent, checkKey, checkRun, objectOf, post, queryOf } from './requests.js';
import type { Saved, SaveOptions, Saver } from './saver.js';
import { forget, watch } from './shutdown.js';
import { doStep, toolOf, type StepContext, type StepOptions, type ToolOptions } from './step.js';
import type { Appended, FindingInfo, Prompt, RunInfo } from './wire.js';

export interface EndOptions {
  result?: unknown;
  error?: string;
  /** what the next owner should be told */
  continuationPrompt?: string;
  /** a reason to end the run for good although an operation is uncertain; it stays so. Otherwise that throws NeedsOperator */
  leaveUncertain?: string;
}

/** As what an owner may end a run. */
export type EndStatus = 'completed' | 'failed' | 'suspended' | 'awaiting_continuation' | 'interrupted' | 'timed_out';

/** What another thread or process needs to work in a run; plain data. */
export interface SharedRun {
  agent: string;
  run: string;
  epoch: number | undefined;
}

/** A run that is going on. */
export class Run<S = any> implements AsyncDisposable {
  /** what it works on: assign it or change it, and save it */
  state: S;
  /** how it was begun; null where it was joined */
  readonly plan: Plan<S> | null;
  private readonly core: Core;
  private readonly heartbeat: Heartbeat | undefined;
  private readonly autosaves = new Set<Autosave>();
  private readonly asked = new Map<string, string>(); // for the words of each question the last prompt that had an answer
  private readonly stopWithin: number;
  private readonly onRest: (() => void) | undefined;
  private working: Promise<unknown> | undefined;
  private ending: Promise<RunInfo | undefined> | undefined;
  private stopping: Promise<void> | undefined;

  /** @internal */
  constructor(delivery: Delivery, saver: Saver, name: { agent: string; run: string }, plan: Plan<S> | null, options: RunOptions<S> & { over?: () => void }, epoch?: number) {
    this.plan = plan;
    this.onRest = options.over;
    this.core = new Core(delivery, saver, name.agent, name.run, plan?.claimed ? plan.epoch : epoch, () => this.rest(), plan);
    this.stopWithin = milliseconds(options.stopWithin ?? 5000, 'stopWithin');
    this.state = options.initial as S;
    if (options.onDrift) this.onDrift(options.onDrift);
    if (!plan) return;
    if (plan.checkpoint) {
      const { state, bytes, content_type: contentType } = plan.checkpoint;
      this.state = state;
      this.core.loaded({ bytes, contentType, dropped: [], simplified: [] });
    }
    for (const step of plan.completed_steps) this.core.done.set(`step ${step.key}`, step.result);
    for (const [what, result] of doneBefore(plan)) this.core.done.set(what, result);
    for (const { key, error } of plan.uncertain_operations) this.core.uncertain.set(key, error ?? 'its process ended in it');
    this.heartbeat = new Heartbeat(this.core, options);
    watch(this, options.signals ?? ['SIGTERM', 'SIGINT']);
    if (options.autosave !== undefined) this.autosave(options.autosave);
  }

  get agent(): string {
    return this.core.agent;
  }

  /** Its name. */
  get run(): string {
    return this.core.run;
  }

  /** The fencing token; undefined where the run began without the daemon. */
  get epoch(): number | undefined {
    return this.core.epoch;
  }

  /** Aborted when the run is to stop, or another owner has it. */
  get signal(): AbortSignal {
    return this.core.signal;
  }

  /** Saves a state, which becomes the run's; without one, the run's. */
  async save(state: S = this.state, options: SaveOptions = {}): Promise<Saved> {
    this.state = state;
    return this.core.save(this.core.encode(state, options), options);
  }

  /** Saves the state where it has changed since it was saved; undefined where it has not. */
  async saveIfChanged(options: SaveOptions = {}): Promise<Saved | undefined> {
    return this.saveThis(this.state, options);
  }

  /** Does something once: a key that has succeeded in this run gives its stored result again. */
  step<T>(key: string, work: (step: StepContext) => T | Promise<T>, options: StepOptions = {}): Promise<T> {
    return doStep(this.core, key, work, options);
  }

  /**
   * Makes each call of a function a step: `const search = run.tool('search', find); await search('x')`. Its key is made of the name and the
   * arguments, so a call with the same arguments gives the stored result again. Drift detection counts each call.
   */
  tool<A extends unknown[], T>(name: string, fn: (...args: A) => T | Promise<T>, options: ToolOptions = {}): (...args: A) => Promise<T> {
    return toolOf(this.core, name, fn, options);
  }

  /**
   * Does something that must not happen twice: `state` is saved before. Where `work` throws NotDone, or what `notDone` names, it is known
   * not to have happened, and OperationFailed offers the state. Every other error leaves it uncertain, and is thrown as it is. A key that
   * has succeeded is not done again.
   */
  operation<T>(name: string, state: unknown, work: (operation: StepContext) => T | Promise<T>, options: OperationOptions = {}): Promise<T> {
    return doOperation(this.core, name, state, work, options);
  }

  /**
   * Begins something risky, whose end you say yourself: `await using operation = await run.beginOperation('deploy', run.state)`. Without
   * `operation.succeed()` it is uncertain when the scope is left. Where it has succeeded before, `operation.replayed` is true.
   */
  beginOperation<T>(name: string, state: unknown, options: OperationOptions = {}): Promise<OpenOperation<T>> {
    return beginOperation<T>(this.core, name, state, options);
  }

  /** Appends to the journal, all of it or nothing. Undefined where it waits in the spool. */
  async events(events: { type: string; payload?: unknown }[]): Promise<Appended | undefined> {
    const { epoch, path, delivery } = this.core;
    const list = events.map(({ type, payload }) => {
      const encoded = payload === undefined ? undefined : encode(payload, delivery.settings.unserializable, `the payload of event ${type}`);
      return objectOf({ type: checkKey('event type', type) }, { payload: encoded?.bytes });
    });
    const body = Buffer.from(`[${list.map(String).join(',')}]`);
    const said = await this.core.send<Appended>(post(`${path}/events`, body, this.core, queryOf({ epoch })));
    return said instanceof SetAside ? undefined : said;
  }

  /** Appends one event to the journal. */
  event(type: string, payload?: unknown): Promise<Appended | undefined> {
    return this.events([{ type, payload }]);
  }

  /** The last verdict on the run's drift. It came with the last save, step, operation or heartbeat: nothing is asked. */
  drift(): Drift {
    return this.core.drift.last;
  }

  /** Has a function called when the verdict gets worse, or something new was found. Answers what ends that. */
  onDrift(fn: (drift: Drift) => void): () => void {
    return this.core.drift.listen(fn);
  }

  /** Tells of a finding of the agent's own, and answers it. Throws where the daemon is away. */
  async report({ rule, message, severity, advice, evidence, sinceSeq }: Report): Promise<FindingInfo> {
    this.core.check();
    const body = objectOf({ run: this.run, epoch: this.epoch, rule, severity: severity ?? 'warn', message, advice, evidence, since_seq: sinceSeq });
    return this.found(post(`/v1/agents/${this.agent}/drift/findings`, body, this.core));
  }

  /** Says that a finding was none, or is dealt with; answers it, with the checkpoints that are clean again. */
  dismiss(finding: string, reason?: string): Promise<FindingInfo & { cleaned: string[] }> {
    return this.found(post(`/v1/findings/${encodeURIComponent(finding)}/dismiss`, objectOf({ reason }), this.core));
  }

  private async found<T extends FindingInfo>(ask: Ask): Promise<T> {
    const { drift, ...finding } = understood<T & { drift?: DriftVerdict }>(await this.core.delivery.call(ask), true);
    this.core.drift.note(drift);
    return finding as unknown as T;
  }

  /**
   * Asks a person and waits for the answer, while heartbeats and other calls go on. After a crash the resumed run asks again, and gets the
   * same question, or its answer at once. Throws Unanswered where there is none to be had.
   */
  async ask<D = any>(question: string, options: QuestionOptions = {}): Promise<Answered<D>> {
    this.core.mayBegin();
    const { key, reason, choices, schema, suspend } = options;
    const after = key === undefined ? this.asked.get(question) : undefined;
    const body = objectOf({ epoch: this.epoch, question, key, after, reason, choices, schema, expires: expiry(options.expires), suspend });
    const { delivery } = this.core;
    let prompt = understood<Prompt>(await delivery.call(post(`${this.core.path}/prompts`, body, this.core)), true);
    if (prompt.status === 'open') {
      if (suspend) {
        this.rest();
        this.core.end();
        throw new Unanswered(prompt);
      }
      prompt = await wait(delivery.settings, delivery.connection.endpoint, prompt.id, [this.signal, options.signal]);
    }
    this.asked.set(question, prompt.id);
    return answered<D>(prompt);
  }

  /** Says how far the work has come; it should only grow. The next heartbeat carries it. */
  progress(progress: number): void {
    if (this.heartbeat) this.heartbeat.progress = progress;
  }

  /** Saves the state every so often, where it has changed, until the run ends. */
  autosave(every: Duration, state: () => unknown = () => this.state): Autosave {
    const run = {
      name: `agent ${this.agent}, run ${this.run}`,
      over: () => this.core.over,
      save: () => this.saveThis(state(), {}),
      warn: this.core.delivery.settings.warn,
      stopped: (autosave: Autosave) => this.autosaves.delete(autosave),
    };
    const autosave = new Autosave(run, milliseconds(every, 'autosave'));
    this.autosaves.add(autosave);
    return autosave;
  }

  /** Ends the run, or with a status that can be resumed its present segment. A state that has changed is saved first. */
  end(status: EndStatus = 'completed', options: EndOptions = {}): Promise<RunInfo | undefined> {
    return (this.ending = this.finish(status, options));
  }

  /** @internal Ends the run with the state that was saved last. */
  endAsSaved(status: EndStatus, options: EndOptions): Promise<RunInfo | undefined> {
    return (this.ending = this.finish(status, options, false));
  }

  /** For `Sidecar.join` in another thread or process. */
  share(): SharedRun {
    return { agent: this.agent, run: this.run, epoch: this.epoch };
  }

  /** Asks the run to stop, as a signal does: what goes on may finish, then the state is saved, and the run ends as interrupted. */
  stop(reason = 'stop'): Promise<void> {
    return this.windUp(reason, new Promise(() => undefined));
  }

  /**
   * For `await using run = await agent.start()`: a run that is left without `end` is suspended, so that the next start resumes it. Whether
   * something was thrown cannot be known here. A run that was joined stays its owner's.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.stopping) await this.stopping;
    if (this.ending) await this.ending;
    if (this.core.over || this.core.signal.aborted || this.plan === null) this.rest();
    else await this.end('suspended');
  }

  /** @internal Learns what earlier processes of the run have done. */
  async learn(): Promise<void> {
    if (this.plan?.claimed && this.core.delivery.settings.failOpen) await learn(this.core);
  }

  /** @internal Stops once; `hurry` is not to wait for what goes on. */
  windUp(reason: string, hurry: Promise<unknown>): Promise<void> {
    if (this.core.over) return Promise.resolve();
    return (this.stopping ??= this.wind(reason, hurry));
  }

  /** @internal Does the work of this run, as long as which it may go on. */
  during<T>(work: (run: Run<S>) => T | Promise<T>): Promise<T> {
    const working = (async () => work(this))();
    this.working = working.catch(() => undefined);
    return working;
  }

  /** @internal When it has stopped; undefined where nobody asked it to. */
  get stopped(): Promise<void> | undefined {
    return this.stopping;
  }

  /** @internal */
  get over(): boolean {
    return this.core.over;
  }

  /** @internal Stops beating and listening, and tells the daemon nothing. */
  rest(): void {
    this.heartbeat?.stop();
    for (const autosave of this.autosaves) autosave.cancel();
    forget(this);
    this.onRest?.();
  }

  /** @internal Saves a state to go back to, on an error. */
  async recover(thrown: unknown): Promise<void> {
    if (this.state === undefined) return;
    await this.save(this.state, { kind: 'recovery', metadata: { error: messageOf(thrown).slice(0, 4000) } });
  }

  /** @internal */
  warn(message: string): void {
    this.core.delivery.settings.warn(`agent ${this.agent}, run ${this.run}, ${message}`);
  }

  private async saveThis(state: unknown, options: SaveOptions): Promise<Saved | undefined> {
    if (state === undefined) return undefined;
    const encoded = this.core.encode(state, options);
    return this.core.isSaved(encoded) ? undefined : this.core.save(encoded, options);
  }

  private async finish(status: EndStatus, options: EndOptions, save = true): Promise<RunInfo | undefined> {
    const { core } = this;
    core.check();
    const { result, error, continuationPrompt, leaveUncertain } = options;
    const doubtful = leaveUncertain === undefined && (status === 'completed' || status === 'failed') ? [...core.uncertain.keys()] : [];
    if (doubtful.length === 0) this.rest(); // otherwise the run may well go on
    await endBegins(core);
    if (save) await this.saveIfChanged();
    const encoded = result === undefined ? undefined : encode(result, 'drop', 'the result of the run');
    const leaving = leaveUncertain === undefined ? {} : { leave_uncertain: true, reason: leaveUncertain };
    const members = { epoch: this.epoch, status, error: error?.slice(0, 16_000), continuation_prompt: continuationPrompt, ...leaving };
    const ask = post(`${core.path}/end`, objectOf(members, { result: encoded?.bytes }), core);
    let said: RunInfo | SetAside;
    try {
      said = await (doubtful.length > 0 ? core.direct<RunInfo>(ask) : core.send<RunInfo>(ask)); // only the daemon knows whether they are resolved
    } catch (refused) {
      if (isSidecarError(refused, 'uncertain_operation')) throw await needsOperator(core, refused);
      throw doubtful.length > 0 && isSidecarError(refused) && passes(refused, true) ? away(core, doubtful[0]!) : refused;
    }
    this.rest();
    core.end();
    return said instanceof SetAside ? undefined : said;
  }

  private async wind(reason: string, hurry: Promise<unknown>): Promise<void> {
    this.core.abort(new SidecarError('interrupted', `run ${this.run} of agent ${this.agent} was asked to stop: ${reason}`));
    let timer: NodeJS.Timeout | undefined;
    const over = new Promise((done) => (timer = setTimeout(done, this.stopWithin)));
    await Promise.race([this.working ?? this.idle(), over, hurry]);
    clearTimeout(timer);
    if (this.ending) await this.ending.catch(() => undefined);
    if (this.core.over) return;
    this.rest();
    await this.saveIfChanged().catch((error: unknown) => this.warn(`was asked to stop, and its state could not be saved: ${messageOf(error)}`));
    await this.endAsSaved('interrupted', { error: reason });
  }

  /** When no step or operation is going on. */
  private async idle(): Promise<void> {
    while (this.core.busy > 0) await new Promise((done) => setTimeout(done, 5));
  }
}

/** @internal */
export function joinRun<S>(delivery: Delivery, saver: Saver, shared: SharedRun): Run<S> {
  const name = { agent: checkAgent(shared.agent), run: checkRun(shared.run) };
  return new Run<S>(delivery, saver, name, null, {}, shared.epoch);
}
