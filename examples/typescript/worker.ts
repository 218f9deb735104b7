// An agent that writes ten chapters and survives kill -9: start it, kill it at
// any moment, and start it again. What was written is not written again.
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

import { NeedsOperator, Sidecar } from 'ckptsidecar';

const notes = process.env['NOTES'] ?? 'notes.txt';
const pause = Number(process.env['PAUSE'] ?? 500);

/** Stands for a call of a model. */
async function write(chapter: number): Promise<string> {
  await sleep(pause);
  return `Chapter ${chapter}: something about ${['rivers', 'stones', 'winds'][chapter % 3]}.`;
}

try {
  await new Sidecar({ autostart: true }).agent('writer').run(
    async (run) => {
      console.log(`${run.plan?.verdict}: begins at chapter ${run.state.chapters.length + 1}`);
      for (let n = run.state.chapters.length + 1; n <= 10; n++) {
        const text = await run.step(`write chapter ${n}`, (step) => {
          step.measure({ outputTokens: 12, progress: n / 10 });
          return write(n);
        });
        run.state.chapters.push(text);
        await run.save(); // costs what changed
        console.log(text);
      }
      // Nobody wants the notes twice, so this is an operation: where the process
      // dies in it, somebody is asked before it is done again.
      await run.operation('publish', run.state, () => appendFileSync(notes, run.state.chapters.join('\n') + '\n'));
      console.log(`all ${run.state.chapters.length} chapters are in ${notes}`);
    },
    { initial: { chapters: [] as string[] } },
  );
} catch (error) {
  if (!(error instanceof NeedsOperator)) throw error;
  console.error(error.message);
  process.exit(20);
}
