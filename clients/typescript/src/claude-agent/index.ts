export { type SessionKey, type SessionStoreEntry, SidecarSessionStore, type SidecarSessionStoreOptions } from './store.js';
export type { FoldSessionSummary, SessionSummaryEntry } from './summary.js';
