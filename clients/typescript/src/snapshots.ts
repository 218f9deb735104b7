import { Autosave } from './autosave.js';
import { type Duration, milliseconds } from './duration.js';
import { messageOf } from './errors.js';
import { Run } from './run.js';
import type { Saved } from './saver.js';
import { Sidecar } from './sidecar.js';

export interface SnapshotOptions<T> {
  /** the client to save with; otherwise one with the defaults */
  sidecar?: Sidecar;
  /** the agent's name; otherwise the object's `workflowId` or `agent`, or the name of its class */
  agent?: string;
  /** the run's name; otherwise the object's `runId` or `id`, or `main` */
  run?: string;
  /** what to save; otherwise the object itself, as far as it is data */
  state?: (run: T) => unknown;
  onWarning?: (message: string) => void;
}

/** The snapshots of an object that `withSnapshots` wraps. */
export class Snapshots {
  /** the last one; undefined before the first */
  last: Saved | undefined;
  private bytes: Buffer | undefined;
  private readonly autosave: Autosave;
  private over = false;

  /** @internal */
  constructor(
    every: number,
    private readonly snapshot: (last: Buffer | undefined) => Promise<{ saved: Saved; bytes: Buffer } | undefined>,
    private readonly name: string,
    private readonly warn: (message: string) => void,
  ) {
    this.autosave = new Autosave({ name, over: () => this.over, save: () => this.take(), warn, stopped: () => undefined }, every);
  }

  /** Takes one now, where something has changed. */
  async now(): Promise<Saved | undefined> {
    await this.autosave.now();
    return this.last;
  }

  /** Takes a last one. */
  async stop(): Promise<void> {
    await this.autosave.stop();
    this.over = true;
  }

  /** @internal Takes one, and never throws: it is not what the caller asked for. */
  async quietly(): Promise<void> {
    try {
      await this.autosave.now();
    } catch (error) {
      this.warn(`${this.name}, was not saved: ${messageOf(error)}`);
    }
  }

  /** @internal Takes a last one, and never throws. */
  async quietlyStop(): Promise<void> {
    try {
      await this.stop();
    } catch (error) {
      this.over = true;
      this.warn(`${this.name}, was not saved: ${messageOf(error)}`);
    }
  }

  private async take(): Promise<void> {
    const taken = await this.snapshot(this.bytes);
    if (!taken) return;
    this.last = taken.saved;
    if (taken.saved.stored !== 'nowhere') this.bytes = taken.bytes;
  }
}

const wrapped = new WeakMap<object, Snapshots>();

/** The snapshots of what `withSnapshots` answered; undefined for anything else. */
export function snapshotsOf(run: object): Snapshots | undefined {
  return wrapped.get(run);
}

/** What an object of a class that `withSnapshots` has extended can do besides. */
export interface Snapshotted {
  /** Takes a snapshot now, where something has changed. */
  createSnapshot(): Promise<Saved | undefined>;
  /** Takes a last snapshot, ends the timer, and then calls the class's own `destroy`, where it has one. */
  destroy(): Promise<void>;
}

/** A class, as `withSnapshots` extends it. */
export type SnapshotClass<C extends new (...args: any[]) => object> = Omit<C, never> & (new (...args: ConstructorParameters<C>) => Omit<InstanceType<C>, keyof Snapshotted> & Snapshotted);

/**
 * Extends a class so that each of its objects is saved every so often, where it has changed: `withSnapshots(Run, manager, 5000)`. What is saved
 * is the object's `store`, where it has one, else the object. The `manager` is a client, or options.
 */
export function withSnapshots<C extends new (...args: any[]) => object>(type: C, manager?: Sidecar | SnapshotOptions<InstanceType<C>>, every?: Duration): SnapshotClass<C>;
/**
 * Saves an object's data every so often, where it has changed, and whenever
 * one of its methods that answers a promise has ended. The answer is used in
 * the object's place; the code that uses it need not change.
 */
export function withSnapshots<T extends object>(run: T, every: Duration, options?: SnapshotOptions<T>): T;
export function withSnapshots(run: any, second: any, third?: any): any {
  if (typeof run === 'function') return extended(run, second instanceof Sidecar ? { sidecar: second } : (second ?? {}), third ?? 5000);
  return around(run, second, third ?? {});
}

/** The class with snapshots. */
function extended<C extends new (...args: any[]) => any>(type: C, options: SnapshotOptions<any>, every: Duration): SnapshotClass<C> {
  const ms = milliseconds(every, 'the time between snapshots');
  const made = class extends type {
    constructor(...args: any[]) {
      super(...args);
      wrapped.set(this, snapshotsFor(this, ms, options, storeOf));
    }

    createSnapshot(): Promise<Saved | undefined> {
      return wrapped.get(this)!.now();
    }

    async destroy(): Promise<void> {
      await wrapped.get(this)!.quietlyStop();
      await super.destroy?.();
    }
  };
  Object.defineProperty(made, 'name', { value: type.name });
  return made as unknown as SnapshotClass<C>;
}

/** What of a run is to be saved: its store's state, its store, or itself. */
function storeOf(run: object): unknown {
  const { store } = run as { store?: unknown };
  if (typeof store !== 'object' || store === null) return run;
  const { getState } = store as { getState?: unknown };
  return typeof getState === 'function' ? (getState.call(store) as unknown) : store;
}

function around<T extends object>(run: T, every: Duration, options: SnapshotOptions<T>): T {
  const ms = milliseconds(every, 'the time between snapshots');
  if (run instanceof Run) {
    run.autosave(ms, options.state && (() => options.state!(run)));
    return run;
  }
  const snapshots = snapshotsFor(run, ms, options, (object) => object);
  const proxy = new Proxy(run, handler(snapshots));
  wrapped.set(proxy, snapshots);
  return proxy;
}

function snapshotsFor<T extends object>(run: T, every: number, options: SnapshotOptions<T>, usual: (run: T) => unknown): Snapshots {
  const sidecar = options.sidecar ?? new Sidecar(options.onWarning ? { onWarning: options.onWarning } : {});
  const agent = sidecar.agent(options.agent ?? nameIn(run, ['workflowId', 'agent'], /[^A-Za-z0-9._-]/g) ?? classOf(run));
  const name = options.run ?? nameIn(run, ['runId', 'id'], /[^A-Za-z0-9._:@+-]/g) ?? 'main';
  const warn = options.onWarning ?? ((message: string) => process.emitWarning(message, 'CkptsidecarWarning'));
  const state = options.state ?? usual;
  return new Snapshots(every, (last) => agent.saveChanged(state(run), last, { run: name }), `agent ${agent.name}, run ${name}`, warn);
}

/** Passes everything on, and takes a snapshot after what was awaited. */
function handler<T extends object>(snapshots: Snapshots): ProxyHandler<T> {
  const methods = new WeakMap<object, unknown>();
  return {
    get(target, key) {
      const member: unknown = Reflect.get(target, key, target);
      const fixed = Reflect.getOwnPropertyDescriptor(target, key);
      if (typeof member !== 'function' || key === 'constructor' || (fixed && !fixed.configurable && !fixed.writable)) return member;
      let method = methods.get(member);
      if (!method) {
        method = (...args: unknown[]): unknown => {
          const answer: unknown = Reflect.apply(member, target, args); // on the object itself, which may have private members
          if (!(answer instanceof Promise)) return answer;
          return answer.finally(() => snapshots.quietly());
        };
        methods.set(member, method);
      }
      return method;
    },
    set: (target, key, value) => Reflect.set(target, key, value, target),
  };
}

function nameIn(run: object, members: string[], cannotBe: RegExp): string | undefined {
  for (const member of members) {
    const name = (run as Record<string, unknown>)[member];
    const text = typeof name === 'string' ? name.replace(cannotBe, '-').replace(/^[^A-Za-z0-9]+/, '') : '';
    if (text !== '') return text.slice(0, 128);
  }
  return undefined;
}

function classOf(run: object): string {
  const name: unknown = (run as { constructor?: { name?: unknown } }).constructor?.name;
  return typeof name === 'string' && /^[A-Za-z]/.test(name) ? name.replace(/[^A-Za-z0-9._-]/g, '-') : 'Object';
}
