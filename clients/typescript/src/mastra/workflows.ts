import { InMemoryDB, WorkflowsInMemory, WorkflowsStorage } from '@mastra/core/storage';

import type { Agent } from '../agent.js';
import { Shelf } from './shelf.js';

type Of<M extends keyof WorkflowsStorage> = WorkflowsStorage[M] extends (...args: infer A) => infer R ? { args: A; answer: Awaited<R> } : never;
type Kept = InMemoryDB['workflows'] extends Map<string, infer V> ? V : never;

/**
 * Mastra's storage of workflow snapshots. A workflow run is a run, and each snapshot a checkpoint of it. What a call means is decided by
 * Mastra's own in-memory storage, which is given what the call is about, and whose outcome is saved.
 */
export class SidecarWorkflows extends WorkflowsStorage {
  private readonly kept: Shelf<Kept>;

  constructor(agent: Agent) {
    super();
    this.kept = new Shelf(agent, 'workflow');
  }

  /** A change reads and writes as one, also where other processes make others. */
  supportsConcurrentUpdates(): boolean {
    return true;
  }

  async dangerouslyClearAll(): Promise<void> {
    await this.kept.clear();
  }

  async updateWorkflowResults(args: Of<'updateWorkflowResults'>['args'][0]): Promise<Of<'updateWorkflowResults'>['answer']> {
    return this.onRun(args, (theirs) => theirs.updateWorkflowResults(args));
  }

  async updateWorkflowState(args: Of<'updateWorkflowState'>['args'][0]): Promise<Of<'updateWorkflowState'>['answer']> {
    return this.onRun(args, (theirs) => theirs.updateWorkflowState(args));
  }

  async persistWorkflowSnapshot(args: Of<'persistWorkflowSnapshot'>['args'][0]): Promise<void> {
    await this.onRun(args, (theirs) => theirs.persistWorkflowSnapshot(args));
  }

  async loadWorkflowSnapshot(args: Of<'loadWorkflowSnapshot'>['args'][0]): Promise<Of<'loadWorkflowSnapshot'>['answer']> {
    const run = await this.kept.read(args.workflowName, args.runId);
    return run ? over([run]).theirs.loadWorkflowSnapshot(args) : null;
  }

  async listWorkflowRuns(args: NonNullable<Of<'listWorkflowRuns'>['args'][0]> = {}): Promise<Of<'listWorkflowRuns'>['answer']> {
    return over(await this.kept.all(args.workflowName)).theirs.listWorkflowRuns(args);
  }

  async getWorkflowRunById(args: Of<'getWorkflowRunById'>['args'][0]): Promise<Of<'getWorkflowRunById'>['answer']> {
    const { workflowName, runId } = args;
    const run = workflowName === undefined ? undefined : await this.kept.read(workflowName, runId);
    const runs = workflowName === undefined ? await this.kept.all() : run ? [run] : [];
    return over(runs).theirs.getWorkflowRunById(args);
  }

  async deleteWorkflowRunById({ workflowName, runId }: Of<'deleteWorkflowRunById'>['args'][0]): Promise<void> {
    await this.kept.remove(workflowName, runId);
  }

  /** Does something with Mastra's own storage over one workflow run, and saves what has become of it. */
  private async onRun<T>({ workflowName, runId }: { workflowName: string; runId: string }, work: (theirs: WorkflowsInMemory) => Promise<T>): Promise<T> {
    let answer: T | undefined;
    await this.kept.change([workflowName, runId], { workflow: workflowName, externalSession: runId }, async (run) => {
      const { db, theirs } = over(run ? [run] : []);
      answer = await work(theirs);
      return [...db.workflows.values()][0];
    });
    return answer as T;
  }
}

function over(runs: Kept[]): { db: InMemoryDB; theirs: WorkflowsInMemory } {
  const db = new InMemoryDB();
  for (const run of runs) db.workflows.set(`${run.workflow_name}-${run.run_id}`, run);
  return { db, theirs: new WorkflowsInMemory({ db }) };
}
