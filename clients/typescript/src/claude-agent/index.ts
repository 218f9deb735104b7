export { type SessionKey, type SessionStoreEntry, SidecarSessionStore, type SidecarSessionStoreOptions } from './store.js';
