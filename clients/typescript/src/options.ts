import type { Drift } from './drift.js';
import type { Duration } from './duration.js';
import type { Check } from './once.js';
import type { Labels } from './wire.js';

export interface RunOptions<S = any> {
  /** its name; otherwise the run for which `ckptsidecar exec` has started this process for the agent, or `main` */
  run?: string;
  /** the state of a run that has none yet */
  initial?: S;
  workflow?: string;
  goal?: string;
  parentRun?: string;
  /** a checkpoint of the same agent that a new run begins with */
  forkFrom?: string;
  externalSession?: string;
  labels?: Labels;
  /** for the audit log: why it is resumed */
  reason?: string;
  /** take the run over from an owner that is alive; its writes are refused from then on */
  force?: boolean;
  /** throw where the daemon is away, rather than begin without it */
  needDaemon?: boolean;
  /**
   * Asked about each uncertain operation that would need a person, where the agent can find out itself; undefined where it cannot.
   * `ckptsidecar exec` asks a person instead.
   */
  resolve?: Check;
  /** a reason to go on although an operation is uncertain: it stays so, and its key does not begin before it is resolved */
  leaveUncertain?: string;
  /** after so long without a sign of life the run counts as dead; 30 s */
  heartbeatTimeout?: Duration;
  /** how often it gives one; 10 s */
  heartbeatEvery?: Duration;
  /** after so long without progress it counts as dead; the agent's policy */
  progressTimeout?: Duration;
  /** called when the verdict on the run's drift gets worse, or something new was found */
  onDrift?: (drift: Drift) => void;
  /** save the state every so often, where it has changed */
  autosave?: Duration;
  /** the signals at which it saves, ends as interrupted, and dies; SIGTERM and SIGINT. `[]` for none */
  signals?: NodeJS.Signals[];
  /** how long it may go on after one; 5 s */
  stopWithin?: Duration;
  /** as what a run ends whose work throws: `interrupted` can be resumed, `failed` begins anew. `interrupted` */
  onError?: 'interrupted' | 'failed';
}
