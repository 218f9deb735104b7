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

/**
 * Saves an object's data every so often, where it has changed, and whenever
 * one of its methods that answers a promise has ended. The answer is used in
 * the object's place; the code that uses it need not change.
 */
export function withSnapshots<T extends object>(run: T, every: Duration, options: SnapshotOptions<T> = {}): T {
  const ms = milliseconds(every, 'the time between snapshots');
  if (run instanceof Run) {
    run.autosave(ms, options.state && (() => options.state!(run)));
    return run;
  }
  const sidecar = options.sidecar ?? new Sidecar(options.onWarning ? { onWarning: options.onWarning } : {});
  const agent = sidecar.agent(options.agent ?? nameIn(run, ['workflowId', 'agent'], /[^A-Za-z0-9._-]/g) ?? classOf(run));
  const name = options.run ?? nameIn(run, ['runId', 'id'], /[^A-Za-z0-9._:@+-]/g) ?? 'main';
  const warn = options.onWarning ?? ((message: string) => process.emitWarning(message, 'CkptsidecarWarning'));
  const state = options.state ?? ((object: T): unknown => object);
  const snapshots = new Snapshots(ms, (last) => agent.saveChanged(state(run), last, { run: name }), `agent ${agent.name}, run ${name}`, warn);
  const proxy = new Proxy(run, handler(snapshots));
  wrapped.set(proxy, snapshots);
  return proxy;
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
