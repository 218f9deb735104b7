import type { FindingInfo, Json } from './wire.js';

/** How grave what is open in a run is; `none` where nothing is. */
export type Severity = 'none' | 'info' | 'warn' | 'critical';

const ranks: Record<string, number> = { none: 0, info: 1, warn: 2, critical: 3 };

/** What the daemon says of a run's drift, with each save, step, operation and heartbeat. */
export class Drift {
  /** the highest severity of what is open */
  readonly verdict: Severity;
  /** for the model: what to do now */
  readonly advice: string | null;
  /** those that the answer told of first */
  readonly findings: FindingInfo[];
  /** in the same way, what looks like a secret, which is no drift */
  readonly secrets: FindingInfo[];
  /** while checkpoints are in doubt: the id of the one to go back to */
  readonly clean: string | null;
  /** while critical: the id of the recovery checkpoint that was made first */
  readonly recovery: string | null;
  /** if the daemon was asked */
  readonly run: string | undefined;

  constructor(told: Partial<DriftVerdict> = {}) {
    this.verdict = told.verdict ?? 'none';
    this.advice = told.advice ?? null;
    this.findings = told.findings ?? [];
    this.secrets = told.secrets ?? [];
    this.clean = told.clean ?? null;
    this.recovery = told.recovery ?? null;
    this.run = told.run;
  }

  /** Whether the run should go back to `clean`. */
  get critical(): boolean {
    return this.verdict === 'critical';
  }

  /** Whether the run should change its way. */
  get warn(): boolean {
    return this.verdict === 'warn';
  }

  /** @internal */
  get rank(): number {
    return ranks[this.verdict] ?? 0;
  }
}

/** A verdict as the daemon writes it. */
export interface DriftVerdict {
  verdict: Severity;
  advice: string | null;
  findings: FindingInfo[];
  secrets?: FindingInfo[];
  clean: string | null;
  recovery: string | null;
  run?: string;
}

/** A finding of the agent's own. */
export interface Report {
  /** the name of what was found, such as `wrong-file` */
  rule: string;
  message: string;
  /** `warn` */
  severity?: 'info' | 'warn' | 'critical';
  /** for the model: what to do now */
  advice?: string;
  evidence?: Record<string, Json>;
  /** of a critical one: the number of the newest checkpoint that is still good; otherwise the run's newest */
  sinceSeq?: number;
}

/** @internal Keeps the last verdict of a run, and tells those who asked. */
export class DriftWatch {
  last = new Drift();
  private readonly told = new Set<(drift: Drift) => void>();

  constructor(private readonly warn: (message: string) => void) {}

  listen(fn: (drift: Drift) => void): () => void {
    this.told.add(fn);
    return () => this.told.delete(fn);
  }

  /** Takes in what an answer says; undefined where it says nothing. */
  note(told: Partial<DriftVerdict> | null | undefined): void {
    if (!told || typeof told.verdict !== 'string') return;
    const now = new Drift(told);
    const worse = now.rank > this.last.rank;
    this.last = now;
    if (!worse && now.findings.length === 0) return;
    for (const fn of this.told) {
      try {
        fn(now);
      } catch (error) {
        this.warn(`onDrift threw an error: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
  }
}
