// A history of 526 KB that grows by 1.6 KB a save: the whole sent, only the
// change, and whichever has been quicker, in turns, over one daemon.
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
const ways = [
  ['whole', true],
  ['change', false],
  ['quicker', undefined],
].map(([name, whole]) => ({ name, sidecar: new Sidecar({ socket: d.socket, whole }) }));
for (let round = 1; round <= rounds; round++) {
  for (const way of ways) Object.assign(way, { agent: way.sidecar.agent(`${way.name}-${round}`), took: [], hash: createHash('sha256') });
  const state = { step: 0, messages: Array.from({ length: 320 }, (_, n) => message(n)) };
  for (let n = 0; n < saves; n++) {
    state.step++;
    state.messages.push(message(320 + n));
    if (state.messages.length > 330) state.messages.length = 320; // it stays at half a megabyte
    for (let i = 0; i < ways.length; i++) {
      const way = ways[(n + i) % ways.length]; // each is as often the first
      const began = performance.now();
      const { sha256 } = await way.agent.save(state);
      way.took.push(performance.now() - began);
      way.hash.update(sha256);
    }
  }
  const [whole, change, quicker] = ways.map(({ took }) => quantile(took, 0.5));
  const same = new Set(ways.map(({ hash }) => hash.digest('hex'))).size === 1;
  console.log(`526 KB, round ${round}: whole p50 ${whole.toFixed(2)} ms | change p50 ${change.toFixed(2)} ms, ${(whole / change).toFixed(2)} x as fast | the quicker p50 ${quicker.toFixed(2)} ms | the same states: ${same}`);
}
for (const { sidecar } of ways) sidecar.close();
await d.stop();
