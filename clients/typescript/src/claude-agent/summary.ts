import type { SessionKey, SessionStoreEntry } from './entry.js';

/** What the SDK knows of a session without its transcript. `data` is the SDK's own. */
export interface SessionSummaryEntry {
  sessionId: string;
  mtime: number;
  data: Record<string, unknown>;
}

/** The SDK's `foldSessionSummary`: a summary with more entries. */
export type FoldSessionSummary = (prev: SessionSummaryEntry | undefined, key: SessionKey, entries: SessionStoreEntry[], options?: { mtime?: number }) => SessionSummaryEntry;

const mostBytes = 16 * 1024; // of a summary; the SDK reads the transcript where there is none

let imported: Promise<FoldSessionSummary | undefined> | undefined;

/** The function of the SDK that is installed, undefined where none is or where it is older. */
export function foldOfSDK(): Promise<FoldSessionSummary | undefined> {
  const sdk: string = '@anthropic-ai/claude-agent-sdk'; // no literal: this package does not need it
  imported ??= import(sdk).then(
    ({ foldSessionSummary }: { foldSessionSummary?: unknown }) => (typeof foldSessionSummary === 'function' ? (foldSessionSummary as FoldSessionSummary) : undefined),
    () => undefined,
  );
  return imported;
}

/** Folds lines of a transcript into what is known of it; undefined where that fails or grows too large. */
export function folded(fold: FoldSessionSummary, key: SessionKey, data: Record<string, unknown> | undefined, text: string): Record<string, unknown> | undefined {
  try {
    const before = data && { sessionId: key.sessionId, mtime: 0, data };
    const after = fold(before, key, JSON.parse(`[${text}]`) as SessionStoreEntry[], { mtime: 0 }).data;
    return Buffer.byteLength(JSON.stringify(after)) <= mostBytes ? after : undefined;
  } catch {
    return undefined; // the entries are kept all the same
  }
}
