import { isSidecarError, messageOf } from './errors.js';
import { supervised } from './exec.js';
import type { RunOptions } from './options.js';
import type { Run } from './run.js';

/** Does something in a run, and ends it as it ends. */
export async function runOn<T, S>(run: Run<S>, work: (run: Run<S>) => T | Promise<T>, options: RunOptions<S>): Promise<T> {
  let value: T;
  try {
    value = await run.during(work);
  } catch (thrown) {
    await abandoned(run, thrown, options);
    throw thrown;
  }
  if (run.stopped) {
    await run.stopped;
    throw run.signal.reason;
  }
  if (run.over) return value;
  try {
    await run.end('completed', { result: value });
  } catch (thrown) {
    await abandoned(run, thrown, options, false); // its last state was refused, for example
    throw thrown;
  }
  return value;
}

/** Ends the run. Over an uncertain operation it cannot fail for good, so it can be resumed. */
async function endedAs<S>(run: Run<S>, status: 'interrupted' | 'failed', error: string): Promise<void> {
  try {
    await run.endAsSaved(status, { error });
  } catch (refused) {
    if (status === 'interrupted' || !isSidecarError(refused, 'uncertain_operation')) throw refused;
    await run.endAsSaved('interrupted', { error });
  }
}

/** The work threw: a state to go back to is saved where it can be, and the run ends so that it can be resumed. */
async function abandoned<S>(run: Run<S>, thrown: unknown, options: RunOptions<S>, recover = true): Promise<void> {
  if (run.stopped) {
    await run.stopped.catch(() => undefined);
    return;
  }
  if (run.over || isSidecarError(thrown, 'fenced')) {
    run.rest();
    return;
  }
  try {
    if (recover) await run.recover(thrown);
  } catch (error) {
    run.warn(`failed (${messageOf(thrown)}), and its state could not be saved: ${messageOf(error)}`);
  }
  try {
    if (supervised(run)) run.rest(); // what its process ends itself is not started again
    else await endedAs(run, options.onError ?? 'interrupted', messageOf(thrown));
  } catch (error) {
    run.rest();
    run.warn(`failed (${messageOf(thrown)}), and its end could not be recorded: ${messageOf(error)}`);
  }
}
