export { type ChatMessage, type SavedChat, SidecarChats, type SidecarChatsOptions } from './chats.js';
export { DurableSteps } from './durable.js';
