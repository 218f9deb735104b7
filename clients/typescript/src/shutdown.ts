import { isMainThread } from 'node:worker_threads';

import { messageOf } from './errors.js';

/** What is to be saved when the process is asked to stop. */
export interface Stoppable {
  /** `hurry` is kept when what goes on is not to be waited for any longer */
  windUp(reason: string, hurry: Promise<unknown>): Promise<void>;
  warn(message: string): void;
}

// There is one listener a signal, and none where nothing is to be saved.
const watched = new Map<NodeJS.Signals, Set<Stoppable>>();
let asked = false;
let hasten: () => void = () => undefined;

export function watch(what: Stoppable, signals: NodeJS.Signals[]): void {
  if (!isMainThread) return; // signals come to the main thread only
  for (const signal of signals) {
    let list = watched.get(signal);
    if (!list) {
      watched.set(signal, (list = new Set()));
      process.on(signal, onSignal);
    }
    list.add(what);
  }
}

export function forget(what: Stoppable): void {
  for (const [signal, list] of watched) {
    list.delete(what);
    if (list.size === 0 && !asked) unlisten(signal);
  }
}

function unlisten(signal: NodeJS.Signals): void {
  watched.delete(signal);
  process.removeListener(signal, onSignal);
}

/** Winds all up, and then lets the process die of the signal, unless somebody else listens to it. */
function onSignal(signal: NodeJS.Signals): void {
  if (asked) {
    hasten(); // a second one: what goes on is not waited for
    return;
  }
  asked = true;
  const hurry = new Promise<void>((done) => (hasten = done));
  const list = [...(watched.get(signal) ?? [])];
  void Promise.all(list.map((what) => stopped(what, signal, hurry))).then(() => {
    asked = false;
    for (const [other, left] of [...watched]) if (left.size === 0 || other === signal) unlisten(other);
    if (process.listenerCount(signal) === 0) process.kill(process.pid, signal);
  });
}

async function stopped(what: Stoppable, signal: string, hurry: Promise<void>): Promise<void> {
  try {
    await what.windUp(signal, hurry);
  } catch (error) {
    what.warn(`could not be ended at ${signal}: ${messageOf(error)}`);
  }
}
