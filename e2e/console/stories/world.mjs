// What all stories share: one daemon, one console, one browser and one tab. A story that kills the daemon starts it again.
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { newTab, open, owner, startBrowser, startConsole, startDaemon } from '../setup.mjs';

/** @type {any} */
export const world = {};

before(async () => {
  world.daemon = await startDaemon();
  world.console = await startConsole(world.daemon);
  world.browser = await startBrowser();
  world.tab = await newTab(world.browser, world.console);
  await open(world.tab, world.console);
});
after(async () => {
  await world.browser?.close();
  await world.console?.stop();
  await world.daemon?.stop();
});

export const api = (method, path, body) => world.daemon.api(method, path, body);
export const text = (t, selector) => t.evaluate((s) => document.querySelector(s)?.textContent ?? '', selector);
export const has = (t, selector, words) => t.waitForFunction((s, w) => document.querySelector(s)?.textContent.includes(w), { timeout: 30_000, polling: 100 }, selector, words);
export const fine = (t) => assert.deepEqual(t.bad.splice(0), []);
export const operation = async (run) => (await api('GET', `/v1/agents/bot/runs/${run}/operations`)).operations[0];
export const me = async (run, agent = 'bot') => (await api('GET', `/v1/agents/${agent}/runs/${run}`)).owner;

/** A run whose owner dies in an operation. */
export async function lost(run) {
  const child = owner();
  await api('POST', '/v1/agents/bot/runs', { run, pid: child.pid, goal: `do what ${run} needs` });
  for (const n of [1, 2, 3]) {
    await api('POST', `/v1/agents/bot/runs/${run}/steps`, { key: `s${n}`, name: 'look', epoch: 1, status: 'succeeded', result: n, duration_ms: 10 });
    await api('POST', '/v1/agents/bot/checkpoints', { run, kind: 'routine', epoch: 1, state: { n, list: ['a', 'b', `c${n}`], plan: { next: `step ${n + 1}` } }, step: `s${n}` });
  }
  await api('POST', `/v1/agents/bot/runs/${run}/operations`, { key: 'push', name: 'push branch', epoch: 1 });
  child.kill('SIGKILL');
}

/** What has the focus, and whether the focus is seen. */
const focused = (t) => t.evaluate(() => {
  const e = /** @type {any} */ (document.activeElement), style = getComputedStyle(e), mark = e.querySelector?.('.cp');
  const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 || e.matches('.mk') && parseFloat(getComputedStyle(mark).strokeWidth) > 2;
  const box = e.getBoundingClientRect();
  return {
    text: (e.getAttribute('aria-label') || e.textContent || '').trim().replace(/\s+/g, ' ').slice(0, 160), id: e.id, role: e.getAttribute('role') ?? '', tag: e.tagName.toUpperCase(),
    href: e.getAttribute('href') ?? '', type: e.getAttribute('type') ?? '', name: e.getAttribute('name') ?? '', form: Boolean(e.closest('dialog')), within: e.closest('section, dialog, header')?.id ?? '',
    seen: e === document.body || seen && box.width > 0 && box.height > 0,
  };
});

/** Presses Tab until what has the focus is wanted, as a person does. Every stop on the way must show that it has the focus. */
export async function tabTo(t, what, wanted, key = 'Tab') {
  const way = [];
  for (let i = 0; i < 200; i++) {
    await t.keyboard.press(key);
    const at = await focused(t);
    assert.ok(at.seen, `nobody sees that ${at.tag} ${at.id} “${at.text}” has the focus`);
    if (wanted(at)) return at;
    way.push(`${at.tag}#${at.id} ${at.text.slice(0, 40)}`);
  }
  throw new Error(`Tab does not come to ${what}: ${way.slice(0, 80).join(' | ')}`);
}

/** Goes to a link that opens a form, and opens it with Enter. The form must take the focus. */
export async function openForm(t, href, label, first = '#why') {
  await tabTo(t, label, (at) => at.tag === 'A' && at.href.includes(href) && at.text.startsWith(label) && (label !== 'It did' || !at.text.startsWith('It did not')));
  await t.keyboard.press('Enter');
  await t.waitForSelector(`dialog[open] ${first}`);
  await t.waitForFunction(() => document.activeElement?.closest('dialog'), { timeout: 30_000 });
}

/** Types over what a field has in it. */
export async function typeOver(t, words) {
  await t.keyboard.down('Control');
  await t.keyboard.press('a');
  await t.keyboard.up('Control');
  await t.keyboard.type(words);
}
