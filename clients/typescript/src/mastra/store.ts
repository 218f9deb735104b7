import { MastraCompositeStore, type MastraCompositeStoreConfig } from '@mastra/core/storage';

import { Sidecar } from '../sidecar.js';
import { SidecarMemory } from './memory.js';
import { SidecarWorkflows } from './workflows.js';

export interface SidecarMastraStoreOptions {
  /** of the storage, for Mastra; `ckptsidecar` */
  id?: string;
  /** the agent under whose name everything is saved; `mastra` */
  agent?: string;
  /** the client to save with; otherwise one with the defaults, which waits 30 s for a daemon that is away */
  sidecar?: Sidecar;
  /** a storage for what this one has not: scores, observability and the rest */
  default?: NonNullable<MastraCompositeStoreConfig['default']>;
}

/** A storage of Mastra with the domains `memory` and `workflows`. What a call has answered is on disk. */
export class SidecarMastraStore extends MastraCompositeStore {
  constructor(options: SidecarMastraStoreOptions = {}) {
    const agent = (options.sidecar ?? new Sidecar({ deadline: 30_000 })).agent(options.agent ?? 'mastra');
    super({
      id: options.id ?? 'ckptsidecar',
      name: 'SidecarMastraStore',
      ...(options.default ? { default: options.default } : {}),
      domains: { memory: new SidecarMemory(agent), workflows: new SidecarWorkflows(agent) },
    });
  }
}
