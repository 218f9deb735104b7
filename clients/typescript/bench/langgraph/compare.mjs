// A conversation of 200 steps with three channels of 64 KiB that do not change
// and a list of messages that grows, kept by this package's checkpointer and by
// LangGraph's own for SQLite. They take turns of 20 steps in one process, so
// that neither waits for what the other has written. Both flush every put.
// Prints bytes on disk, and how long put and getTuple take.
//
//   npm ci && node compare.mjs [steps]       (CKPTSIDECAR_BIN names the daemon)
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';

import { emptyCheckpoint, uuid6 } from '@langchain/langgraph-checkpoint';
import { SqliteSaver } from '@langchain/langgraph-checkpoint-sqlite';
import Database from 'better-sqlite3';

import { SidecarSaver } from '../../dist/esm/langgraph/index.js';

const steps = Number(process.argv[2] ?? 200);
const still = 64 << 10;
const words = 'the agent reads a file, finds what it looked for, and writes down what it has learned about it so far '.split(' ');

/** Text that is not the same twice, and compresses as prose does. */
function text(seed, size) {
  let out = '';
  for (let x = seed * 2654435761 + 1; out.length < size; x = (x * 1103515245 + 12345) % 2147483648) out += words[x % words.length] + (x % 97 === 0 ? x : '') + ' ';
  return out.slice(0, size);
}

const channels = { plan: text(1, still), documents: [text(2, still)], profile: { text: text(3, still) } };

/** The bytes of a database with all that is in its log, and of that log, which is used again and does not grow with what is kept. */
function bytes(folder) {
  const name = readdirSync(folder).find((name) => name.endsWith('.db'));
  const db = new Database(join(folder, name), { readonly: true });
  const pages = db.pragma('page_count', { simple: true }) * db.pragma('page_size', { simple: true });
  const log = readdirSync(folder).filter((name) => name.endsWith('.db-wal')).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
  db.close();
  return { pages, log };
}

async function daemon(folder) {
  const socket = join(folder, 's');
  const child = spawn(process.env.CKPTSIDECAR_BIN ?? 'ckptsidecar', ['serve', '--db', join(folder, 'ckpt.db'), '--socket', socket], { stdio: ['ignore', 'ignore', 'pipe'] });
  await new Promise((ready, failed) => {
    let log = '';
    child.stderr.on('data', (part) => (log += part).includes('msg=ready') && ready());
    child.once('exit', () => failed(new Error(log)));
  });
  return { saver: new SidecarSaver({ socket }), stop: () => new Promise((done) => child.once('exit', done) && child.kill()) };
}

async function sqlite(folder) {
  const db = new Database(join(folder, 'langgraph.db'));
  const saver = new SqliteSaver(db);
  saver.setup();
  db.pragma('synchronous = FULL');
  if (db.pragma('synchronous', { simple: true }) !== 2) throw new Error('synchronous is not FULL');
  return { saver, stop: async () => db.close() };
}

/** One checkpointer on its way through the conversation. */
class Talk {
  constructor({ saver, stop }, folder) {
    Object.assign(this, { saver, stop, folder });
    this.config = { configurable: { thread_id: 'bench', checkpoint_ns: '' } };
    this.puts = [];
    this.gets = [];
  }

  async step(n, messages) {
    const first = n === 0;
    const versions = { plan: 1, documents: 1, profile: 1, messages: n + 1 };
    const checkpoint = { ...emptyCheckpoint(), id: uuid6(n), channel_values: { ...channels, messages }, channel_versions: versions };
    let from = performance.now();
    this.config = await this.saver.put(this.config, checkpoint, { source: 'loop', step: n, parents: {} }, first ? versions : { messages: n + 1 });
    this.puts.push(performance.now() - from);
    from = performance.now();
    const tuple = await this.saver.getTuple({ configurable: { thread_id: 'bench', checkpoint_ns: '' } });
    this.gets.push(performance.now() - from);
    if (tuple.checkpoint.channel_values.messages.length !== n + 1 || tuple.checkpoint.channel_values.plan !== channels.plan) throw new Error('it is not what was put');
  }

  async end() {
    this.saver.close?.();
    await this.stop();
    return bytes(this.folder);
  }
}

const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.floor(q * list.length)].toFixed(2);
const folder = () => mkdtempSync(join(tmpdir(), 'ckpt-bench-'));
const [ours, theirs] = [folder(), folder()];
const talks = { ckptsidecar: new Talk(await daemon(ours), ours), 'langgraph-checkpoint-sqlite': new Talk(await sqlite(theirs), theirs) };
const turn = 20;
const messages = Array.from({ length: steps }, (_, n) => ({ role: n % 2 ? 'assistant' : 'user', content: text(n + 10, 500) }));
for (let from = 0; from < steps; from += turn) {
  for (const talk of Object.values(talks)) {
    for (let n = from; n < Math.min(from + turn, steps); n++) await talk.step(n, messages.slice(0, n + 1));
  }
}
console.log(`${steps} steps, 3 channels of ${still >> 10} KiB that do not change, a message of 500 bytes each; load ${loadavg()[0].toFixed(1)}`);
const size = {};
for (const [name, talk] of Object.entries(talks)) {
  const { pages, log } = await talk.end();
  size[name] = pages;
  console.log(`${name.padEnd(28)} ${String(pages).padStart(9)} bytes (and a log of ${log})   put p50 ${quantile(talk.puts, 0.5)} ms, p99 ${quantile(talk.puts, 0.99)}   getTuple p50 ${quantile(talk.gets, 0.5)} ms, p99 ${quantile(talk.gets, 0.99)}`);
}
console.log(`ckptsidecar has 1/${(size['langgraph-checkpoint-sqlite'] / size.ckptsidecar).toFixed(1)} of the other's bytes`);
for (const path of [ours, theirs]) rmSync(path, { recursive: true, force: true });
