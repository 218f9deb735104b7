// What the daemon's calls for checkpointers take and answer: docs/LANGGRAPH.md.

import type { Checkpoint } from '@langchain/langgraph-checkpoint';

import type { DriftVerdict } from '../drift.js';

export interface Sized {
  type: string;
  length: number;
}

export interface StoredHead extends Sized {
  channel: string;
  /** names the value as long as the daemon runs */
  tag?: string;
  /** the client has it, so its bytes are left out */
  held?: boolean;
}

export interface TaskHead extends Sized {
  task: string;
  idx: number;
  channel: string;
}

export interface TupleHead {
  thread: string;
  ns: string;
  id: string;
  parent: string | null;
  checkpoint: Omit<Checkpoint, 'channel_values'>;
  metadata: unknown;
  values: StoredHead[];
  writes: TaskHead[];
  sends: Sized[];
}

export interface PageHead {
  tuples: TupleHead[];
  next: string | null;
}

export interface HistoryHead {
  channels: { channel: string; seed: Sized | null; writes: TaskHead[] }[];
}

/** The answer to a put; where something is missing, nothing was written. */
export interface PutAnswer {
  missing: string[];
  checkpoint: string | null;
  run: string;
  seq: number;
  replaced: boolean;
  /** of the values that were sent */
  tags?: Record<string, string>;
  /** as it is now */
  drift?: DriftVerdict;
}
