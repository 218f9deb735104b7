// A real daemon in a folder of its own, a console beside it, and Debian's Chromium, which every page must satisfy: no
// console error, no report of the content policy, no request beyond the console, nothing wider than the screen.
import { execFile, execFileSync, spawn } from 'node:child_process';
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import puppeteer from 'puppeteer-core';

const root = fileURLToPath(new URL('../..', import.meta.url));
const require = createRequire(import.meta.url);
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

export const bin = process.env.CKPTSIDECAR_BIN ?? join(root, 'dist', 'ckptsidecar');
export const shots = process.env.CONSOLE_SHOTS ?? join(root, 'dist', 'console-shots');
mkdirSync(shots, { recursive: true });

const children = [];
process.on('exit', () => { for (const c of children) c.kill('SIGKILL'); });

const chromium = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((p) => existsSync(p));

/** Waits until something holds. @param {string} what @param {() => any} done */
export async function until(what, done) {
  const end = Date.now() + 60_000;
  for (;;) {
    const value = await done();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not in a minute: ${what}`);
    await pause(50);
  }
}

/** A daemon that can be killed and started again. */
export async function startDaemon(...settings) {
  const folder = mkdtempSync(join(tmpdir(), 'con-'));
  const socket = join(folder, 's');
  const env = { ...process.env, HOME: folder, XDG_CONFIG_HOME: folder, XDG_RUNTIME_DIR: folder };
  const d = {
    folder, socket, child: null,
    run: (...args) => execFileSync(bin, [...args, '--socket', socket], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], env }),
    api: (method, path, body) => new Promise((done, fail) => {
      const r = request({ socketPath: socket, method, path, headers: body === undefined ? {} : { 'Content-Type': 'application/json' } }, (answer) => {
        let text = '';
        answer.on('data', (c) => { text += c; });
        answer.on('end', () => { const v = text ? JSON.parse(text) : {}; if (answer.statusCode >= 400) fail(new Error(`${method} ${path}: ${text}`)); else done(v); });
      });
      r.on('error', fail);
      r.end(body === undefined ? undefined : JSON.stringify(body));
    }),
    later: (...args) => promisify(execFile)(bin, [...args, '--socket', socket], { env }),
    async start() {
      d.child = spawn(bin, ['serve', '--db', join(folder, 'ckpt.db'), '--socket', socket, '--set', 'monitor.interval=50ms', ...settings.flatMap((s) => ['--set', s])],
        { env, stdio: 'ignore' });
      children.push(d.child);
      await until('the daemon answers', () => { try { d.run('status'); return true; } catch { return false; } });
    },
    async kill() {
      const ended = new Promise((done) => d.child.on('exit', done));
      d.child.kill('SIGKILL');
      await ended;
    },
    async stop() { await d.kill(); rmSync(folder, { recursive: true, force: true }); },
  };
  await d.start();
  return d;
}

/** A console, which prints a link for each line that it reads. */
export async function startConsole(daemon, ...flags) {
  const child = spawn(bin, ['console', '--no-open', '--socket', daemon.socket, ...flags], { stdio: ['pipe', 'pipe', 'inherit'] });
  children.push(child);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  let first = (await lines.next()).value;
  const c = {
    child, origin: new URL(first).origin,
    async link() {
      if (first) { const l = first; first = ''; return l; }
      child.stdin.write('\n');
      return (await lines.next()).value;
    },
    async stop() {
      const ended = new Promise((done) => child.on('exit', done));
      child.kill('SIGTERM');
      await ended;
    },
  };
  return c;
}

export async function startBrowser(...args) {
  if (!chromium) throw new Error('there is no Chromium: apt-get install chromium');
  return puppeteer.launch({
    executablePath: chromium, protocolTimeout: 120_000, args: ['--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--force-color-profile=srgb', ...args],
  });
}

export const wide = { width: 1440, height: 900 };
export const narrow = { width: 390, height: 844, deviceScaleFactor: 2, isMobile: true, hasTouch: true };

/** A tab in which whatever a page must not do is kept in `bad`. A console error of a refusal that a story wants is allowed. */
export async function newTab(browser, console_, viewport = wide) {
  const t = await browser.newPage();
  await t.setViewport(viewport);
  t.bad = [];
  t.allowed = [];
  t.on('console', (m) => {
    if (['error', 'warn'].includes(m.type()) && !t.allowed.some((a) => a.test(m.text() + ' ' + (m.location()?.url ?? '')))) t.bad.push(`console: ${m.text()}`);
  });
  t.on('pageerror', (e) => t.bad.push(`error: ${e.message}`));
  t.on('request', (q) => { if (!q.url().startsWith(`${console_.origin}/`) && !q.url().startsWith('data:')) t.bad.push(`outside: ${q.url()}`); });
  await t.evaluateOnNewDocument(() => {
    addEventListener('securitypolicyviolation', (e) => globalThis.console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`));
  });
  return t;
}

/** Opens a session by a link, as a person does. */
export async function open(tab, console_) {
  await tab.goto(await console_.link());
  await tab.waitForFunction(() => location.pathname.startsWith('/s/') && document.querySelector('.rail'));
  tab.base = new URL(tab.url()).pathname.split('/').slice(0, 3).join('/') + '/';
  tab.to = (path, options) => tab.goto(console_.origin + tab.base + path, options);
}

/** Looks at a page: its width, and axe's findings, of all rules or of some. */
export async function inspect(t, name, only) {
  // A phone lays a page out as wide as it is. So the width is compared with the one that was asked for.
  const wider = await t.evaluate(() => document.documentElement.scrollWidth) - t.viewport().width;
  if (wider > 0) t.bad.push(`${name}: ${wider} px wider than the screen`);
  if (!await t.evaluate(() => 'axe' in window)) await t.evaluate(axe);
  const result = await t.evaluate((run) => window.axe.run(document, { runOnly: run, resultTypes: ['violations'] }),
    only ? { type: 'rule', values: only } : { type: 'tag', values: rules });
  for (const v of result.violations) {
    t.bad.push(`${name}: axe ${v.id} ×${v.nodes.length} ${v.nodes[0].target} ${v.nodes[0].any[0]?.message ?? v.help}`);
  }
}

export async function theme(t, name) {
  await t.evaluate((value) => document.querySelector(`.theme button[value=${value}]`).click(), name);
}

/** A process that does nothing but live, as the owner of a run. */
export function owner() {
  const child = spawn('sleep', ['1000'], { stdio: 'ignore' });
  children.push(child);
  return child;
}

/** Writes a figure where the tests keep theirs. */
export function figure(text) {
  console.log(`# ${text}`);
  appendFileSync(join(shots, 'figures.txt'), text + '\n');
}
