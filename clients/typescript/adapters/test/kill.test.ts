import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { SidecarSession } from 'ckptsidecar/openai-agents';

import { World } from '../../test/world.js';

/** Lets a child count until it has said `many` numbers, and kills it; the last number that it said. */
async function count(world: World, many: number): Promise<number> {
  const child = spawn(process.execPath, [fileURLToPath(new URL('child-adder.js', import.meta.url))], { env: world.env, stdio: ['ignore', 'pipe', 'inherit'] });
  let last = -1;
  for await (const line of createInterface({ input: child.stdout })) {
    last = Number(line);
    if (--many === 0) child.kill('SIGKILL');
  }
  return last;
}

test('what a session has acknowledged survives kill -9 of the agent and of the daemon, once and in order', { timeout: 180_000 }, async () => {
  const world = await World.start();
  let last = -1;
  for (let round = 0; round < 6; round++) {
    const counting = count(world, 5 + round * 3);
    if (round % 2 === 1) {
      await world.stop('SIGKILL'); // while it starts or counts: it waits
      await world.start();
    }
    const said = await counting;
    assert.ok(said > last, `${said} after ${last}`);
    last = said;
  }
  const items = await new SidecarSession<{ content: string }>({ sessionId: 'count', sidecar: world.client() }).getItems();
  assert.ok(items.length > last, `${last} was acknowledged, and there are ${items.length}`);
  assert.deepEqual(items.map(({ content }) => content), Array.from({ length: items.length }, (_, n) => `${n}`));
});
