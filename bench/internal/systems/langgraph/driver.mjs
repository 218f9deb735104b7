// The driver of LangGraph's SQLite saver: DATABASE CORPUS, then orders on
// standard input until it ends. It speaks the lines of bench/internal/load and
// makes the same states, which the saver itself turns into JSON.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

import { emptyCheckpoint, uuid6 } from "@langchain/langgraph-checkpoint";
import { SqliteSaver } from "@langchain/langgraph-checkpoint-sqlite";
import Database from "better-sqlite3";

const [path, corpusPath] = process.argv.slice(2);
const corpus = readFileSync(corpusPath, "latin1");
const stride = 1048573;
const frame = '{"role":"assistant","content":""},'.length;

const db = new Database(path);
const saver = new SqliteSaver(db);
saver.setup();
db.pragma("synchronous = FULL");
if (db.pragma("synchronous", { simple: true }) !== 2) {
  throw new Error("synchronous is not FULL");
}

// Writer is one thread: it makes its next state, as channel values.
class Writer {
  constructor(n, size, step) {
    this.thread = `agent-${size}-${step}-${n}`;
    this.size = size;
    this.step = step;
    this.at = (n * stride) % corpus.length;
    this.seq = 0;
    this.messages = [];
    this.bytes = 0;
  }

  next() {
    this.seq++;
    if (this.step === 0) {
      const head = `{"agent":"${this.thread}","step":${this.seq},"text":""}`;
      return { agent: this.thread, step: this.seq, text: this.text(this.size - head.length) };
    }
    do {
      this.message();
    } while (this.bytes < this.size && this.seq === 1);
    if (this.bytes > (this.size * 5) / 4) {
      this.forget();
    }
    return { agent: this.thread, messages: this.messages };
  }

  message() {
    this.messages.push({ role: "assistant", content: this.text(Math.max(this.step - frame, 1)) });
    this.bytes += this.step;
  }

  forget() {
    const drop = Math.min(Math.ceil((this.bytes - (this.size * 3) / 4) / this.step), this.messages.length - 1);
    this.messages.splice(0, drop);
    this.bytes -= drop * this.step;
  }

  text(n) {
    if (this.at + n > corpus.length) {
      this.at = 0;
    }
    this.at += n;
    return corpus.slice(this.at - n, this.at);
  }
}

const writers = new Map();

function writer(n, size, step) {
  const key = `${n} ${size} ${step}`;
  if (!writers.has(key)) {
    writers.set(key, new Writer(n, size, step));
  }
  return writers.get(key);
}

async function put(w) {
  const checkpoint = { ...emptyCheckpoint(), id: uuid6(w.seq), channel_values: w.next() };
  const config = { configurable: { thread_id: w.thread, checkpoint_ns: "", checkpoint_id: w.parent } };
  w.parent = checkpoint.id;
  const began = process.hrtime.bigint();
  await saver.put(config, checkpoint, { source: "loop", step: w.seq, parents: {} }, {});
  return began;
}

const second = 1e9;

async function run(order) {
  const turn = { saves: 0, micros: [] };
  const all = Array.from({ length: order.clients }, (_, n) => writer(n, order.size, order.step));
  await Promise.all(all.map(put));
  const from = process.hrtime.bigint() + BigInt(Math.round(order.warm * second));
  const until = from + BigInt(Math.round(order.seconds * second));
  await Promise.all(all.map((w) => client(w, order, from, until, turn)));
  return { saves: turn.saves, seconds: order.seconds, micros: turn.micros };
}

async function client(w, order, from, until, turn) {
  let saves = 1;
  const over = () => (order.limit > 0 ? saves > order.limit : process.hrtime.bigint() >= until);
  while (!over()) {
    const began = await put(w);
    const ended = process.hrtime.bigint();
    saves++;
    if (order.limit > 0 || (ended >= from && ended < until)) {
      turn.micros.push(Number((ended - began) / 1000n));
    }
  }
  turn.saves += saves;
}

function say(answer) {
  process.stdout.write(JSON.stringify(answer) + "\n");
}

const version = createRequire(import.meta.url)("@langchain/langgraph-checkpoint-sqlite/package.json").version;
say({ ready: true, version });
for await (const line of createInterface({ input: process.stdin })) {
  try {
    say(await run(JSON.parse(line)));
  } catch (err) {
    say({ error: String(err) });
  }
}
db.close();
