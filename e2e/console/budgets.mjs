// The budgets of the console, measured with much in the daemon: node budgets.mjs. It fills a daemon of its own, which takes
// some minutes, and prints a table. With SMALL=1 it fills it with a hundredth. Ratios are of rounds that take turns.
import { Agent, request } from 'node:http';
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { newTab, open, startBrowser, startConsole, startDaemon } from './setup.mjs';

const small = process.env.SMALL === '1';
const many = small ? 1000 : 100_000;
const runs = small ? 10 : 1000;
const rounds = Number(process.env.ROUNDS ?? 10);
const rate = 100; // saves a second
const seconds = 6; // of a round

const daemon = await startDaemon('monitor.interval=1s');
const agent = new Agent({ keepAlive: true, maxSockets: 16 });
const call = (method, path, body, type = 'application/json') => new Promise((done, fail) => {
  const r = request({ agent, socketPath: daemon.socket, method, path, headers: { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body) } }, (answer) => {
    let text = '';
    answer.on('data', (c) => { text += c; });
    answer.on('end', () => { if (answer.statusCode >= 400) fail(new Error(`${method} ${path}: ${text}`)); else done(text); });
  });
  r.on('error', fail);
  r.end(body);
});

/** Calls f for each number below n, sixteen at a time. */
async function each(n, f) {
  let next = 0;
  await Promise.all(Array.from({ length: 16 }, async () => { while (next < n) await f(next++); }));
}

const at = (list, share) => list.toSorted((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))];
const ms = (value) => `${value.toFixed(value < 10 ? 1 : 0)} ms`;
const row = (what, budget, seen) => console.log(`| ${what} | ${budget} | ${seen} |`);
const cpu = (pid) => { const f = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' '); return (Number(f[11]) + Number(f[12])) * 10; }; // milliseconds
const memory = (pid, part) => Number(readFileSync(`/proc/${pid}/status`, 'utf8').split(`${part}:`)[1].trim().split(' ')[0]) / 1024;

console.error('filling');
await call('PUT', '/v1/agents/much/policy', '{"routine_keep": 0}');
await each(many, (i) => call('POST', '/v1/agents/much/runs/long/steps', JSON.stringify({ key: `s${i}`, name: 'bash', args: { command: `make ${i}` }, status: i % 20 ? 'succeeded' : 'failed', result: { i } })));
await each(many, (i) => call('PUT', `/v1/agents/much/checkpoints/${id(i)}?kind=routine&run=long`, JSON.stringify({ step: i })));
await each(runs, (i) => call('POST', `/v1/agents/agent-${i % 10}/checkpoints`, JSON.stringify({ kind: 'routine', run: `run-${i}`, state: { i } })));
await each(210, (i) => call('POST', '/v1/agents/much/runs/marks/steps', JSON.stringify({ key: `s${i}`, name: 'bash', args: { command: `make ${i}` }, status: 'succeeded', result: { i } })));
await each(210, (i) => call('PUT', `/v1/agents/much/checkpoints/${id(2 * many + i)}?kind=routine&run=marks`, JSON.stringify({ step: i })));
const lines = (word) => JSON.stringify({ log: Array.from({ length: 10_000 }, (_, i) => `${word} line ${i} ${i % 2 ? word : ''}`) });
await call('PUT', `/v1/agents/large/checkpoints/${id(many + 1)}?kind=routine&run=diff`, lines('old'));
await call('PUT', `/v1/agents/large/checkpoints/${id(many + 2)}?kind=routine&run=diff`, lines('new'));
await call('PUT', `/v1/agents/large/checkpoints/${id(many + 3)}?kind=routine&run=huge`, JSON.stringify({ text: 'x'.repeat(small ? 1 << 20 : (64 << 20) - 100) }));

function id(n) { return `01a4f0d8-0001-7000-8000-${String(n).padStart(12, '0')}`; }

const console_ = await startConsole(daemon);
const browser = await startBrowser();
const tab = await newTab(browser, console_);
await open(tab, console_);

console.log(`| what | at most | measured |\n|---|---|---|`);
const screens = [
  ['overview', '', 250], ['the run of many steps', 'o/uid:0/much/long', 250], ['the transcript of many steps', 'o/uid:0/much/long/steps', 250], ['its failures', 'o/uid:0/much/long/steps?hide=ok', 250], ['runs', 'runs', 250], ['audit', 'audit', 250], ['storage', 'storage', 250],
  ['a diff of 10,000 lines', `o/uid:0/large/diff`, 250], ['a state of 64 MiB', `o/uid:0/large/huge`, 250],
];
for (const [name, path, budget] of screens) {
  const took = [];
  let text = '';
  for (let i = 0; i < 20; i++) {
    const seen = await tab.evaluate(async (to) => { const began = performance.now(); const r = await fetch(to); const t = await r.text(); return { ms: performance.now() - began, t, status: r.status }; }, tab.base + path);
    if (seen.status !== 200) { text = `status ${seen.status}`; break; }
    took.push(seen.ms);
    text = seen.t;
  }
  if (!took.length) { row(name, '', text); continue; }
  await tab.to(path);
  const nodes = await tab.evaluate(() => document.querySelectorAll('*').length);
  row(`${name}: p50, p95; page; nodes`, `p95 ${budget} ms, 60 kB gzipped, 3,000`,
    `${ms(at(took, 0.5))}, ${ms(at(took, 0.95))}; ${(text.length / 1000).toFixed(0)} kB, ${(gzipSync(text).length / 1000).toFixed(1)} kB gzipped; ${nodes}`);
}
const asked = [];
for (let i = 0; i < 20; i++) {
  const began = performance.now();
  await daemon.api('GET', '/v1/agents/much/runs/long/recorder');
  asked.push(performance.now() - began);
}
row('the recorder of that run, p50 and p95', '150 ms', `${ms(at(asked, 0.5))}, ${ms(at(asked, 0.95))}`);
await tab.to('o/uid:0/much/marks');
const zooms = await tab.evaluate(() => Array.from({ length: 40 }, (_, i) => {
  const began = performance.now();
  document.dispatchEvent(new KeyboardEvent('keydown', { key: '+++---'[i % 6], bubbles: true }));
  document.querySelector('main').getBoundingClientRect(); // what was drawn is laid out
  return performance.now() - began;
}));
row('a zoom step among 460 marks, p50 and p95', '8 ms', `${ms(at(zooms, 0.5))}, ${ms(at(zooms, 0.95))}; ${await tab.evaluate(() => document.querySelectorAll('*').length)} nodes`);
row('memory of the console', '30 MiB', `${memory(console_.child.pid, 'VmRSS').toFixed(1)} MiB, ${memory(console_.child.pid, 'RssAnon').toFixed(1)} of them its own, the rest of the program file`);

// Saves at an even pace, with five pages that look on and without, in turns.
async function round() {
  const took = [];
  const began = performance.now();
  const used = cpu(daemon.child.pid);
  const waiting = [];
  for (let i = 0; i < rate * seconds; i++) {
    const due = began + i * 1000 / rate;
    if (due > performance.now()) await pause(due - performance.now());
    const sent = performance.now();
    waiting.push(call('POST', '/v1/agents/saver/checkpoints', `{"kind":"routine","state":{"i":${i}}}`).then(() => took.push(performance.now() - sent)));
  }
  await Promise.all(waiting);
  return { p50: at(took, 0.5), p99: at(took, 0.99), cpu: cpu(daemon.child.pid) - used, pages: 0 };
}
const without = [];
const beside = [];
const origin = new URL(console_.origin);
const cookie = (await tab.cookies(console_.origin + tab.base)).map((c) => `${c.name}=${c.value}`).join('; ');

/** Asks the console as the script of a page does, and draws nothing: the browser's own work is not the daemon's. */
async function lookOn(path, of, signal) {
  const ask = (url, headers) => new Promise((done) => {
    const r = request({ host: origin.hostname, port: origin.port, path: tab.base + url, signal, headers: { Cookie: cookie, 'Sec-Fetch-Site': 'same-origin', 'Ckpt-Live': '1', ...headers } }, (answer) => {
      let text = '';
      answer.on('data', (c) => { text += c; });
      answer.on('end', () => done({ status: answer.statusCode, etag: answer.headers.etag ?? '', text: text.trim() }));
    });
    r.on('error', () => done({ status: 0, etag: '', text: '' }));
    r.end();
  });
  let etag = '';
  let seen = '';
  while (!signal.aborted) {
    const page = await ask(path, { 'If-None-Match': etag });
    if (page.status === 200) { etag = page.etag; looks++; }
    if (![0, 200, 304].includes(page.status)) throw new Error(`${path}: ${page.status}`);
    await pause(2000, undefined, { signal }).catch(() => {});
    const change = await ask(`changes?seen=${seen}&${of}`, {});
    if (change.status === 200) seen = change.text;
  }
}
let looks = 0;
await tab.goto('about:blank');
for (let i = 0; i < rounds; i++) {
  without.push(await round());
  const end = new AbortController();
  const all = ['', 'runs', '', 'o/uid:0/saver/main', ''].map((path) => lookOn(path, path.startsWith('o/') ? 'owner=uid:0&agent=saver&run=main' : '', end.signal));
  await pause(500);
  beside.push(await round());
  end.abort();
  await Promise.all(all);
}
if (looks < rounds * 5) throw new Error(`the pages were read ${looks} times only`);
const middle = (list, of) => at(list.map((r) => r[of]), 0.5);
row(`p99 of saves, ${rate} a second, with five open pages and without, in turns`, 'ratio 1.05',
  `${ms(middle(beside, 'p99'))}, ${ms(middle(without, 'p99'))}: ratio ${(middle(beside, 'p99') / middle(without, 'p99')).toFixed(2)} (p50 ${ms(middle(beside, 'p50'))}, ${ms(middle(without, 'p50'))})`);
const more = (middle(beside, 'cpu') - middle(without, 'cpu')) / (seconds * 1000) / 5;
row('one open page, while saves go on', '1 % of a core of the daemon', `${(100 * more).toFixed(2)} % (a save takes ${(middle(without, 'cpu') / rate / seconds).toFixed(2)} ms of it)`);

await browser.close();
await console_.stop();
await daemon.stop();
process.exit(0);
