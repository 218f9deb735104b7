import assert from 'node:assert/strict';
import { test } from 'node:test';

import { snapshotsOf, withSnapshots } from 'ckptsidecar';
import { sleep, until, World } from './world.js';

const world = await World.start();
const sidecar = world.client();

/** A workflow run as other libraries have it; it knows nothing of snapshots. */
class WorkflowRun {
  readonly workflowId = 'order flow';
  status = 'pending';
  stepResults: Record<string, unknown> = {};
  readonly parent: { run?: WorkflowRun } = {};
  #secret = 0;
  constructor(readonly runId: string) {
    this.parent.run = this;
  }
  get steps(): number {
    return this.#secret;
  }
  async start(pause: number): Promise<string> {
    this.status = 'running';
    for (const step of ['a', 'b', 'c']) {
      await sleep(pause);
      this.stepResults[step] = { at: new Date(0), by: this.#secret++ };
    }
    this.status = 'success';
    return 'done';
  }
  async fail(): Promise<never> {
    this.status = 'failed';
    throw new Error('as it was');
  }
  plain(): WorkflowRun {
    return this;
  }
}

test('an object is saved every so often and at its end, and its code does not change', async () => {
  const agent = sidecar.agent('order-flow');
  await agent.setPolicy({ routine_keep: 0 });
  const run = withSnapshots(new WorkflowRun('r/1'), 20, { sidecar });
  assert.ok(run instanceof WorkflowRun);
  assert.equal(await run.start(80), 'done');
  assert.deepEqual([run.status, run.steps], ['success', 3]);
  const last = await agent.latest({ run: 'r-1' });
  assert.equal(last?.state.status, 'success');
  assert.deepEqual(last?.state.stepResults.c, { at: new Date(0), by: 2 });
  assert.deepEqual(Object.keys(last?.state as object), ['runId', 'workflowId', 'status', 'stepResults', 'parent'], 'without its methods');
  const count = async (): Promise<number> => (await agent.list({ run: 'r-1' })).checkpoints.length;
  const between = await count();
  assert.ok(between >= 3, `${between} snapshots`);
  await sleep(100);
  assert.equal(await count(), between, 'nothing has changed');
  run.status = 'changed from outside';
  await until('it is saved', async () => (await agent.latest({ run: 'r-1' }))?.state.status === 'changed from outside');
  await assert.rejects(run.fail(), /as it was/);
  assert.equal((await agent.latest({ run: 'r-1' }))?.state.status, 'failed');
  const snapshots = snapshotsOf(run)!;
  assert.equal(snapshots.last?.stored, 'daemon');
  run.status = 'last';
  await snapshots.stop();
  run.status = 'not any more';
  await sleep(60);
  assert.equal((await agent.latest({ run: 'r-1' }))?.state.status, 'last');
  assert.match(world.warnings.join(), /agent order-flow, run r-1, this was dropped: \/parent\/run \(WorkflowRun\) contains itself/);
});

test('names and the state can be told; a run of ours is saved in itself', async () => {
  const run = withSnapshots({ id: 'x', big: 1, keep: 2 }, '1h', { sidecar, agent: 'told', run: 'r', state: (o) => ({ keep: o.keep }) });
  await snapshotsOf(run)!.now();
  assert.deepEqual((await sidecar.agent('told').latest({ run: 'r' }))?.state, { keep: 2 });
  assert.equal(snapshotsOf({}), undefined);
  await snapshotsOf(run)!.stop();
  const ours = await sidecar.agent('ours').start({ initial: { n: 1 } });
  assert.equal(withSnapshots(ours, 20), ours);
  await until('it is saved', async () => (await sidecar.agent('ours').latest())?.state.n === 1);
  await ours.end();
  assert.throws(() => withSnapshots({}, 'soon'), { code: 'invalid', message: /the time between snapshots is "soon"/ });
});

test('a class is extended, and what is circular in a run is dropped and named', async () => {
  let destroyed = 0;
  class Run {
    readonly workflowId = 'flow';
    readonly timer = setInterval(() => undefined, 1000).unref();
    readonly store: Record<string, unknown>;
    constructor(readonly runId: string) {
      const state: Record<string, unknown> = { runId, status: 'RUNNING', stepResults: new Map([['a', { status: 'completed' }]]), emit: () => undefined };
      state['self'] = state;
      state['timer'] = this.timer;
      this.store = { getState: () => state };
    }
    destroy(): void {
      destroyed++;
      clearInterval(this.timer);
    }
  }
  const Snapshotting = withSnapshots(Run, sidecar, 20);
  assert.equal(Snapshotting.name, 'Run');
  const run = new Snapshotting('r1');
  assert.ok(run instanceof Run);
  await until('it is saved by itself', async () => (await sidecar.agent('flow').latest({ run: 'r1' })) !== null);
  (run.store['getState'] as () => Record<string, unknown>)()['status'] = 'COMPLETED';
  const saved = await run.createSnapshot();
  assert.ok(saved?.dropped.some(({ path }) => path.startsWith('/self')), JSON.stringify(saved?.dropped));
  (run.store['getState'] as () => Record<string, unknown>)()['status'] = 'FAILED';
  await run.destroy();
  assert.equal(destroyed, 1);
  const last = await sidecar.agent('flow').latest({ run: 'r1' });
  assert.equal(last?.state.status, 'FAILED');
  assert.deepEqual(last?.state.stepResults, new Map([['a', { status: 'completed' }]]));
});
