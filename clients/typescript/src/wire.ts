// What the daemon answers, in its own names. A later daemon may answer more.

export type Kind = 'routine' | 'pre_operation' | 'recovery';
export type RunStatus =
  | 'starting'
  | 'running'
  | 'suspended'
  | 'awaiting_continuation'
  | 'interrupted'
  | 'timed_out'
  | 'completed'
  | 'failed';
export type Labels = Record<string, string>;
/** RFC 3339, UTC, milliseconds. */
export type Time = string;
/** Any JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Generated code, and how many bytes of it have run. */
export interface Program {
  source: string;
  executed: number;
}

export interface Checkpoint {
  id: string;
  agent: string;
  owner: string;
  run: string;
  /** 1, 2, … in its run, in the order of acknowledgement */
  seq: number;
  kind: Kind;
  parent: string | null;
  created_at: Time;
  /** bytes of the state */
  size: number;
  /** bytes that the save added to the database */
  stored_size: number;
  sha256: string;
  content_type: string;
  labels: Labels;
  metadata: Record<string, Json>;
  program?: Program;
  step: string | null;
  operation: string | null;
  /** retention never removes it */
  pinned: boolean;
  /** saved after the first evidence of drift */
  suspect: boolean;
}

export interface CheckpointPage {
  checkpoints: Checkpoint[];
  /** the `before` of the next page; null on the last */
  next: string | null;
}

export interface Removal {
  checkpoint: string;
  agent: string;
  run: string;
  kind: Kind;
  seq: number;
  stored_size: number;
  reason: string;
}

/** What a drift detector, an agent itself, or the search for secrets saw in a run. */
export interface FindingInfo {
  id: string;
  agent: string;
  owner: string;
  run: string;
  at: Time;
  rule: string;
  severity: 'info' | 'warn' | 'critical';
  message: string;
  advice: string | null;
  evidence: Record<string, Json>;
  checkpoint: string | null;
  /** what it is about: time, use or progress; what was done; what was saved */
  about: 'run' | 'work' | 'state';
  /** the agent reported it itself */
  posted: boolean;
  since_seq: number | null;
  until_seq: number | null;
  /** when it was open before: its rule fired again soon after it had recovered */
  earlier: { since_seq: number | null; until_seq: number | null; checkpoint: string | null }[];
  closed: 'dismissed' | 'recovered' | 'resumed' | 'restored' | 'begun_anew' | null;
  closed_at: Time | null;
  dismissed_at: Time | null;
  dismissed_by: string | null;
}

/** What an erasure has removed. */
export interface Erased {
  agent: string;
  owner: string;
  runs: number;
  checkpoints: number;
  stored_bytes: number;
  files_bytes: number;
}

export interface DeletedRun {
  agent: string;
  owner: string;
  run: string;
  checkpoints: number;
  /** steps, operations, events, findings, prompts and pieces of states */
  rows: number;
}

export interface ClearedRun {
  agent: string;
  owner: string;
  run: string;
  removed: number;
  /** pinned, or needed by an operation, a prompt or a fork */
  kept: number;
}

/** What an import did. Importing the same again changes nothing. */
export interface ImportReport {
  /** the first one */
  agent: string;
  agents: string[];
  /** of the text */
  version: number;
  /** that were made */
  runs: number;
  runs_present: number;
  /** checkpoints */
  imported: number;
  /** checkpoints that were there already */
  present: number;
  /** what else was brought in, how many of each kind */
  rows?: Record<string, number>;
  /** runs that a person must decide about, because the text does not say all of them */
  uncertain: { agent: string; run: string; reason: string }[];
  /** ids that another agent has, and the new ones */
  renamed?: Record<string, string>;
  pruned: string[];
}

/** One operation of RFC 6902. */
export interface PatchOperation {
  op: 'add' | 'remove' | 'replace' | 'move' | 'copy' | 'test';
  path: string;
  from?: string;
  value?: Json;
}

export interface DiffField {
  /** a JSON pointer */
  path: string;
  from?: Json;
  to?: Json;
  from_size: number;
  to_size: number;
  /** a value was cut, because it is long */
  cut?: boolean;
}

export interface Diff {
  patch: PatchOperation[];
  summary: { added: DiffField[]; removed: DiffField[]; changed: DiffField[] };
}

export interface RunInfo {
  agent: string;
  owner: string;
  run: string;
  workflow: string | null;
  status: RunStatus;
  epoch: number;
  attempt: number;
  pid: number;
  life: number;
  parent_run: string | null;
  forked_from: string | null;
  started_at: Time;
  updated_at: Time;
  ended_at: Time | null;
  accumulated_ms: number;
  goal: string | null;
  progress: number | null;
  continuation_prompt: string | null;
  external_session: string | null;
  labels: Labels;
  heartbeat_timeout: string;
  progress_timeout: string;
  result: Json;
  error: string | null;
}

/** Finds runs; what is left out finds all. */
export interface RunFilter {
  status?: RunStatus;
  workflow?: string;
  /** all of these */
  labels?: Labels;
  /** words that the goal has; `deploy*` is the beginning of one */
  goal?: string;
  /** started then or later, as RFC 3339 */
  since?: string;
  /** started before */
  until?: string;
  /** has a finding of this severity or a worse one that nobody has dismissed */
  severity?: 'info' | 'warn' | 'critical';
  /** `updated`: the last changed first; `started`: the last started first, which no change moves */
  sort?: 'updated' | 'started';
  /** earlier lives of runs too, such as `main~1` */
  lives?: boolean;
  before?: string;
  limit?: number;
}

export interface RunPage {
  runs: RunInfo[];
  next: string | null;
}

export type StepStatus = 'started' | 'succeeded' | 'failed' | 'interrupted';

export interface StepInfo {
  key: string;
  name: string;
  args: Json;
  status: StepStatus;
  attempt: number;
  result: Json;
  error: string | null;
  started_at: Time;
  ended_at: Time | null;
  duration_ms: number | null;
  input_tokens: number | null;
  output_tokens: number | null;
  cost_usd: number | null;
  progress: number | null;
  /** the model's turn: the id of its answer that made this call */
  turn: string | null;
  /** `negative`: it was answered, and the answer was no; that is no error */
  outcome: 'negative' | null;
  /** it succeeded before */
  replayed: boolean;
}

export interface StepPage {
  steps: StepInfo[];
  next: string | null;
}

export interface OperationInfo {
  key: string;
  name: string;
  attempt: number;
  /** `failed`: known not to have happened */
  status: 'open' | 'succeeded' | 'failed' | 'uncertain' | 'superseded';
  args: Json;
  idempotent: boolean;
  /** its code can find out whether it took effect */
  check: boolean;
  result_schema: Record<string, Json> | null;
  /** the `pre_operation` checkpoint */
  checkpoint: string | null;
  started_at: Time;
  ended_at: Time | null;
  result: Json;
  error: string | null;
  resolution: 'it_did' | 'it_did_not' | 'repeat' | null;
  resolved_at: Time | null;
  /** the identity of a person, `check`, `agent` or `idempotent` */
  resolved_by: string | null;
  left_uncertain: boolean;
  /** the open question about it */
  prompt: string | null;
  replayed: boolean;
}

export interface OperationPage {
  operations: OperationInfo[];
  next: string | null;
}

export interface Event {
  seq: number;
  at: Time;
  type: string;
  payload: Json;
}

export interface EventPage {
  events: Event[];
  /** the `after` of the next page; null on the last */
  next: number | null;
}

export interface Appended {
  first: number;
  last: number;
}

export interface CompletedStep {
  key: string;
  name: string;
  result: Json;
}

export interface InterruptedStep {
  key: string;
  name: string;
  args: Json;
  started_at: Time | null;
  /** an answer to the tool call whose result was lost, in the forms that model APIs accept */
  synthetic_result: { text: string; anthropic: Json; openai: Json };
}

export interface Prompt {
  id: string;
  /** `decision`: the daemon asks how to go on with a run; `question`: the run itself asks */
  kind: 'decision' | 'question';
  /** `withdrawn`: the run went on or ended without an answer */
  status: 'open' | 'answered' | 'expired' | 'withdrawn';
  key: string | null;
  choices: string[] | null;
  schema: Json;
  expires_at: Time | null;
  data: Json;
  agent: string;
  owner: string;
  run: string;
  at: Time;
  question: string;
  reason: string;
  checkpoint: string | null;
  memory_diff: Json;
  choice: string | null;
  answered_at: Time | null;
  answered_by: string | null;
}

export interface PromptPage {
  prompts: Prompt[];
  next: string | null;
}

/** How to go on with a run. `checkpoint` is apart: it comes with its state. */
export interface PlanInfo {
  verdict: 'fresh' | 'resume' | 'repair' | 'ask' | 'unsafe' | 'offline';
  reasons: string[];
  agent: string;
  run: string;
  epoch: number;
  attempt: number;
  claimed: boolean;
  completed_steps: CompletedStep[];
  interrupted_steps: InterruptedStep[];
  uncertain_operations: OperationInfo[];
  skipped: { id: string; seq: number; reason: string }[];
  events_after: number;
  program: { executed: number; remaining: string } | null;
  continuation_prompt: string | null;
  accumulated_ms: number;
  external_session: string | null;
  memory_diff: Json;
  prompt: Prompt | null;
  /** what the run itself has asked, oldest first: open questions, and answers that came after the checkpoint */
  questions: Prompt[];
  /** only where this call has claimed the run from another host of the fleet */
  fleet?: { from_host: string; term: number; acknowledged_to: number; lost_at_most: string; strand_possible: boolean };
}

export interface Policy {
  routine_keep: number;
  recovery_keep: string;
  pre_operation_keep: string;
  ended_keep: string;
  lives_keep: number;
  max_bytes: number;
  max_events: number;
  secrets: 'off' | 'warn' | 'redact' | 'reject';
  autoresume: boolean;
  heartbeat_timeout: string;
  progress_timeout: string;
  sensitivity: 'off' | 'low' | 'normal' | 'high';
  /** where a save, step, operation or event is safe before it is answered */
  durability: 'local' | 'fleet';
  on_outage: 'refuse' | 'degrade';
  /** how a run comes to another host when the lease of its own host is over */
  takeover: 'auto' | 'manual' | 'never';
  on_lease_lost: 'stop' | 'continue';
}

/** A policy and where each of its values comes from. */
export interface PolicyLayers {
  /** what counts */
  policy: Policy;
  /** of each value; parts of detectors and budget that somebody has set have names of their own, such as budget.steps */
  from: Record<string, 'default' | 'daemon' | 'owner' | 'agent'>;
  /** what the agent sets itself; not there in an owner's policy */
  agent?: Partial<Policy>;
  /** what the owner sets for all agents */
  owner: Partial<Policy>;
  /** what the daemon's settings say */
  daemon: Partial<Policy>;
}

export interface Version {
  name: string;
  version: string;
  api: number;
  schema: number;
}
