// A history of 526 KB that grows by 1.6 KB a save: only the change sent, and
// the whole, in turns, over one daemon.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Sidecar } from 'ckptsidecar';
import { daemon, quantile } from './lib.mjs';

const rounds = Number(process.env.ROUNDS ?? 3);
const saves = Number(process.env.SAVES ?? 150);
// Real text: the compiler's sources, cut into messages.
const text = readFileSync(createRequire(import.meta.url).resolve('typescript/lib/typescript.js'), 'latin1');
const message = (n) => ({ role: n % 2 ? 'assistant' : 'tool', id: `m${n}`, content: text.slice((n * 1500) % 8_000_000, ((n * 1500) % 8_000_000) + 1500) });

const d = await daemon();
const clients = { whole: new Sidecar({ socket: d.socket, whole: true }), change: new Sidecar({ socket: d.socket }) };
for (let round = 1; round <= rounds; round++) {
  const p50 = {};
  const hashes = {};
  for (const [how, sidecar] of Object.entries(clients)) {
    const agent = sidecar.agent(`history-${how}-${round}`);
    const state = { step: 0, messages: Array.from({ length: 320 }, (_, n) => message(n)) };
    await agent.save(state);
    const took = [];
    hashes[how] = createHash('sha256');
    for (let n = 0; n < saves; n++) {
      state.step++;
      state.messages.push(message(320 + n));
      if (state.messages.length > 330) state.messages.length = 320; // it stays at half a megabyte
      const began = performance.now();
      const saved = await agent.save(state);
      took.push(performance.now() - began);
      hashes[how].update(saved.sha256);
      if (n === saves - 1) console.log(`  ${how}: ${saved.size} bytes, stored ${saved.stored_size}`);
    }
    p50[how] = quantile(took, 0.5);
  }
  const same = hashes.whole.digest('hex') === hashes.change.digest('hex');
  console.log(`526 KB, round ${round}: whole p50 ${p50.whole.toFixed(2)} ms | change p50 ${p50.change.toFixed(2)} ms | ${(p50.whole / p50.change).toFixed(2)} x faster | the same states: ${same}`);
}
for (const sidecar of Object.values(clients)) sidecar.close();
await d.stop();
