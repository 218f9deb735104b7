// Saves of 2 KiB, one after the other: this client beside "ckptsidecar bench
// save", which is the Go client, in turns.
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { Sidecar } from 'ckptsidecar';
import { daemon, quantile } from './lib.mjs';

const rounds = Number(process.env.ROUNDS ?? 3);
const each = Number(process.env.MS ?? 1000);
const bin = process.env.CKPTSIDECAR_BIN ?? 'ckptsidecar';

async function ours() {
  const d = await daemon();
  const sidecar = new Sidecar({ socket: d.socket });
  const agent = sidecar.agent('bench');
  const took = [];
  for (const until = performance.now() + each; performance.now() < until; ) {
    const state = randomBytes(1536).toString('base64'); // 2 KiB of text
    const began = performance.now();
    await agent.save(state, { contentType: 'text/plain' });
    took.push(performance.now() - began);
  }
  sidecar.close();
  await d.stop();
  return took;
}

for (let round = 1; round <= rounds; round++) {
  const go = JSON.parse(execFileSync(bin, ['bench', 'save', '--json', '--clients', '1', '--sizes', '2KiB', '--duration', `${each}ms`, '--rounds', '1'])).cells[0].save;
  const took = await ours();
  const p50 = quantile(took, 0.5);
  console.log(`2 KiB, round ${round}: Go p50 ${go.p50_ms.toFixed(3)} ms, p99 ${go.p99_ms.toFixed(2)} | TypeScript p50 ${p50.toFixed(3)} ms, p99 ${quantile(took, 0.99).toFixed(2)}, ${took.length} saves | ${(p50 / go.p50_ms).toFixed(2)} x`);
}
