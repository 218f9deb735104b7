export { SidecarMastraStore, type SidecarMastraStoreOptions } from './store.js';
export { SidecarMemory } from './memory.js';
export { SidecarWorkflows } from './workflows.js';
