export { type PruneStrategy, SidecarSaver, type SidecarSaverOptions } from './saver.js';
