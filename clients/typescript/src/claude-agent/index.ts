export type { SessionKey, SessionStoreEntry } from './entry.js';
export { SidecarSessionStore, type SidecarSessionStoreOptions } from './store.js';
export type { FoldSessionSummary, SessionSummaryEntry } from './summary.js';
