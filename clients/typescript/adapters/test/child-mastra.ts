// A workflow of Mastra that writes down its effects, and goes on where it was: EFFECTS.
// Each line is `effect N` when step N does what cannot be undone, and `kept N` when its result is on disk.
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

import { Mastra } from '@mastra/core';
import { createStep, createWorkflow } from '@mastra/core/workflows';
import { Sidecar } from 'ckptsidecar';
import { SidecarMastraStore } from 'ckptsidecar/mastra';
import { z } from 'zod';

const effects = process.argv[2]!;
const note = (line: string): void => appendFileSync(effects, `${line}\n`);
const numbers = [1, 2, 3, 4, 5, 6, 7, 8];
const name = 'sum';
const runId = 'the-run';

const storage = new SidecarMastraStore({ sidecar: new Sidecar({ deadline: '30s', startDeadline: '30s' }), agent: 'mastra-killed' });
const workflows = (await storage.getStore('workflows'))!;
const persist = workflows.persistWorkflowSnapshot.bind(workflows);
let noted = 0;
workflows.persistWorkflowSnapshot = async (args) => {
  await persist(args);
  // `restart` begins with the step that the snapshot calls active, also where that has succeeded: a step is kept when the next one has begun.
  const { status, activePaths } = args.snapshot;
  for (const over = status === 'success' ? numbers.length : (activePaths[0] ?? 0); noted < over; ) note(`kept ${++noted}`);
};

const total = z.object({ total: z.number() });
const steps = numbers.map((n) =>
  createStep({
    id: `s${n}`,
    inputSchema: total,
    outputSchema: total,
    resumeSchema: z.object({ go: z.boolean() }),
    execute: async ({ inputData, resumeData, suspend }) => {
      if (n === 5 && !resumeData) return suspend({});
      note(`effect ${n}`);
      await sleep(Math.random() * 20);
      return { total: inputData.total + n };
    },
  }),
);
let chain: any = createWorkflow({ id: name, inputSchema: total, outputSchema: total });
for (const step of steps) chain = chain.then(step);
const mastra = new Mastra({ storage, workflows: { [name]: chain.commit() }, logger: false });

for (;;) {
  const before = await workflows.loadWorkflowSnapshot({ workflowName: name, runId });
  const run = await (mastra.getWorkflow(name) as any).createRun({ runId });
  const known = before && Object.keys(before.context).some((id) => id !== 'input');
  if (before?.status === 'success') {
    note(`result ${(before.result as { total: number }).total}`);
    break;
  }
  if (before?.status === 'suspended') await run.resume({ step: 's5', resumeData: { go: true } });
  else if (known && before.status === 'running') await run.restart();
  else await run.start({ inputData: { total: 0 } });
}
