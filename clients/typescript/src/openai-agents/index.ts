export { type HistoryMutation, type HistoryTransaction, SidecarSession, type SidecarSessionOptions } from './session.js';
