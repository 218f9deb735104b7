import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, get } from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import puppeteer from 'puppeteer-core';
import { inspect, narrow, newTab, open, owner, shots, startBrowser, startConsole, startDaemon, theme, until, wide } from '../setup.mjs';

let daemon, console_, browser, tab;
const text = (t, selector) => t.evaluate((s) => document.querySelector(s)?.textContent ?? '', selector);
const has = (t, selector, words) => t.waitForFunction((s, w) => document.querySelector(s)?.textContent.includes(w), { timeout: 20_000, polling: 100 }, selector, words);
const fine = (t) => assert.deepEqual(t.bad.splice(0), []);

before(async () => {
  daemon = await startDaemon();
  console_ = await startConsole(daemon);
  browser = await startBrowser();
  tab = await newTab(browser, console_);
  await open(tab, console_);
});
after(async () => {
  await browser?.close();
  await console_?.stop();
  await daemon?.stop();
});

/** A run whose owner dies in an operation. */
async function lost(run) {
  const child = owner();
  await daemon.api('POST', '/v1/agents/bot/runs', { run, pid: child.pid, goal: `do what ${run} needs` });
  for (const n of [1, 2, 3]) {
    await daemon.api('POST', `/v1/agents/bot/runs/${run}/steps`, { key: `s${n}`, name: 'look', epoch: 1, status: 'succeeded', result: n, duration_ms: 10 });
    await daemon.api('POST', '/v1/agents/bot/checkpoints', { run, kind: 'routine', epoch: 1, state: { n, list: ['a', 'b', `c${n}`], plan: { next: `step ${n + 1}` } }, step: `s${n}` });
  }
  await daemon.api('POST', `/v1/agents/bot/runs/${run}/operations`, { key: 'push', name: 'push branch', epoch: 1 });
  child.kill('SIGKILL');
}
const operation = async (run) => (await daemon.api('GET', `/v1/agents/bot/runs/${run}/operations`)).operations[0];
/** Focuses an element as the Tab key would, so that all that follows is keys. */
const focus = (t, selector, words = '') => t.evaluate((s, w) => [...document.querySelectorAll(s)].find((e) => e.textContent.includes(w)).focus(), selector, words);

test('a run is killed in an operation, appears without a reload, and is answered by keys', async () => {
  await tab.to('');
  await has(tab, '#needs', 'Nothing waits for you');
  await tab.evaluate(() => { window.same = true; });
  await lost('one');
  await has(tab, '#needs', 'Did “push branch” take effect?');
  assert.equal(await tab.evaluate(() => window.same), true, 'the page was loaded anew');
  await focus(tab, '#needs [data-ask]', 'It did not');
  await tab.keyboard.press('Enter');
  await tab.waitForSelector('dialog[open] #why');
  await inspect(tab, 'a form');
  await tab.screenshot({ path: join(shots, 'form-1440-light.png') });
  assert.equal((await operation('one')).status, 'uncertain', 'it is done before anybody has said why');
  await tab.keyboard.type('looked at the server: no such branch');
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'did not take effect');
  await has(tab, '#needs', 'The owner of one is gone');
  assert.equal((await operation('one')).status, 'failed');
  const rows = (await daemon.api('GET', '/v1/audit?action=resolve_operation')).audit.some((a) => a.reason.includes('no such branch'));
  assert.ok(rows, 'the reason is not in the audit log');
  const plan = await daemon.api('POST', '/v1/agents/bot/runs/one/resume', { reason: 'the story goes on' });
  assert.equal(plan.claimed, true);
  fine(tab);
});

test('select, compare and fork with a changed state, by keys', async () => {
  const me = (await daemon.api('GET', '/v1/agents/bot/runs/one')).owner;
  await tab.to(`o/${me}/bot/one`);
  await focus(tab, '.mk[aria-selected=true]');
  const now = await text(tab, '#pickedname');
  await tab.keyboard.press('Home');
  await has(tab, '#pickedname', 'Checkpoint 1');
  await tab.keyboard.press('ArrowRight');
  await has(tab, '#pickedname', 'Checkpoint 2');
  assert.notEqual(now, await text(tab, '#pickedname'));
  await has(tab, '.diff', 'c2');
  await tab.keyboard.press('+');
  await tab.keyboard.press('+');
  assert.ok(await tab.evaluate(() => Number(document.querySelector('.win').getAttribute('width'))) < 700, 'it does not zoom');
  await tab.keyboard.press('0');
  const id = await tab.evaluate(() => [...document.querySelectorAll('#against option')].find((o) => o.textContent.includes('the last in view')).value);
  await tab.select('#against', id);
  await has(tab, '.diff', 'c3');
  await focus(tab, '#picked [data-ask]', 'Fork');
  await tab.keyboard.press('Enter');
  await has(tab, 'dialog[open]', 'Fork a new run');
  await tab.$eval('#name', (e) => { e.value = ''; });
  await focus(tab, '#name');
  await tab.keyboard.type('two');
  await focus(tab, 'dialog summary');
  await tab.keyboard.press('Enter');
  await tab.$eval('#state', (e) => { e.value = e.value.replace('"n": 2', '"n": 99'); });
  await focus(tab, '#why');
  await tab.keyboard.type('to try another plan');
  await focus(tab, 'dialog .pri');
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'exec --agent bot --run two');
  const run = await daemon.api('GET', '/v1/agents/bot/runs/two');
  assert.ok(run.forked_from);
  const page = await daemon.api('GET', '/v1/agents/bot/checkpoints?run=two');
  assert.equal((await daemon.api('GET', `/v1/checkpoints/${page.checkpoints[0].id}`)).state.n, 99);
  fine(tab);
});

/** Presses Tab until what has the focus is wanted, as a person does. The page must not change while somebody goes through it. */
async function tabTo(t, what, wanted) {
  const seen = [];
  for (let i = 0; i < 200; i++) {
    await t.keyboard.press('Tab');
    const at = await t.evaluate(() => {
      const e = document.activeElement;
      return { text: (e.getAttribute('aria-label') || e.textContent || '').trim().slice(0, 120), id: e.id, role: e.getAttribute('role') ?? '', tag: e.tagName, href: e.getAttribute('href') ?? '' };
    });
    if (wanted(at)) return at;
    seen.push(`${at.tag}#${at.id} ${at.text}`);
  }
  throw new Error(`Tab does not come to ${what}: ${seen.slice(0, 80).join(' | ')}`);
}

test('from the overview to a resolved operation with Tab, Enter and the arrows alone', async () => {
  await lost('keys');
  await until('it waits', async () => (await operation('keys')).status === 'uncertain');
  const t = await newTab(browser, console_);
  await t.goto(tab.url());
  t.to = (path) => t.goto(console_.origin + tab.base + path);
  await t.bringToFront();
  await t.to('');
  await has(t, '#needs', 'bot / keys');
  await t.keyboard.press('Tab');
  assert.equal(await t.evaluate(() => document.activeElement.className), 'skip', 'the first stop is no way past the rail');
  await t.evaluate(() => { window.same = true; });
  await t.keyboard.press('Enter');
  await t.waitForFunction(() => location.hash === '#main');
  assert.equal(await t.evaluate(() => window.same && document.activeElement.id), 'main', 'the way past the rail loads the page anew');
  await tabTo(t, 'the run', (at) => at.tag === 'A' && /\/bot\/keys(\?|$)/.test(at.href));
  await Promise.all([t.waitForNavigation(), t.keyboard.press('Enter')]);
  assert.match(t.url(), /\/bot\/keys/);
  await has(t, '#pickedname', 'Checkpoint 3');
  await tabTo(t, 'the checkpoints of the recorder', (at) => at.role === 'option');
  await t.keyboard.press('ArrowLeft');
  await has(t, '#pickedname', 'Checkpoint 2');
  await t.keyboard.press('ArrowLeft');
  await has(t, '#pickedname', 'Checkpoint 1');
  await t.keyboard.press('ArrowRight');
  await has(t, '#pickedname', 'Checkpoint 2');
  assert.equal(await t.evaluate(() => document.activeElement.getAttribute('aria-selected')), 'true', 'the focus does not go with the choice');
  await tabTo(t, 'It did', (at) => at.tag === 'A' && /\/ask\/resolve/.test(at.href) && at.text.startsWith('It did') && !at.text.startsWith('It did not'));
  await t.keyboard.press('Enter');
  await t.waitForSelector('dialog[open] #why');
  assert.equal(await t.evaluate(() => document.activeElement.id), 'why', 'the form does not take the focus');
  await t.keyboard.type('seen on the server');
  await tabTo(t, 'the button of the form', (at) => at.tag === 'BUTTON' && at.text === 'It did');
  await t.keyboard.press('Enter');
  await has(t, '.note', 'took effect');
  assert.equal((await operation('keys')).status, 'succeeded');
  fine(t);
  await t.close();
});

test('two tabs resolve the same operation, and a form for a run that has moved on does nothing', async () => {
  await lost('three');
  await tab.to('');
  await has(tab, '#needs', 'bot / three');
  const second = await browser.newPage();
  await second.goto(tab.url());
  const ask = async (t, which) => {
    await t.bringToFront();
    await t.evaluate((w) => [...document.querySelectorAll('#needs li')].find((li) => li.textContent.includes('bot / three')).querySelectorAll('[data-ask]')[w].click(), which);
    await t.waitForSelector('dialog[open] #why');
    await t.type('#why', `said by tab ${which}`);
  };
  await ask(tab, 0);
  await ask(second, 1);
  tab.allowed.push(/409/);
  await tab.bringToFront();
  await focus(tab, 'dialog .pri');
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'took effect');
  await second.bringToFront();
  await second.click('dialog .pri');
  await has(second, 'dialog', 'changed in the meantime');
  assert.equal((await operation('three')).status, 'succeeded');
  await second.close();
  await tab.bringToFront();
  fine(tab);
});

test('all findings of a run are dismissed with one reason', async () => {
  await daemon.api('POST', '/v1/agents/bot/runs', { run: 'four' });
  await daemon.api('POST', '/v1/agents/bot/checkpoints', { run: 'four', kind: 'routine', epoch: 1, state: { n: 1 } });
  for (const n of [1, 2, 3]) {
    await daemon.api('POST', '/v1/agents/bot/drift/findings', { run: 'four', rule: `own-${n}`, severity: n === 1 ? 'critical' : 'warn', message: `it is odd ${n}`, since_seq: 0 });
  }
  const me = (await daemon.api('GET', '/v1/agents/bot/runs/four')).owner;
  await tab.to(`o/${me}/bot/four`);
  await has(tab, '#findings', '3 open');
  await focus(tab, '#findings header [data-ask]');
  await tab.keyboard.press('Enter');
  await tab.waitForSelector('dialog[open] #why');
  await tab.keyboard.type('the data was a test');
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'Dismissed 3 findings');
  await has(tab, '#findings', '0 open');
  fine(tab);
});

test('a question of a run is answered with a form made from its schema', async () => {
  await daemon.api('POST', '/v1/agents/bot/runs', { run: 'five' });
  await daemon.api('POST', '/v1/agents/bot/runs/five/prompts', {
    epoch: 1, key: 'k', question: 'Which one?', choices: ['left', 'right'],
    schema: { type: 'object', required: ['nights'], properties: { nights: { type: 'integer', title: 'Nights' }, sure: { type: 'boolean', title: 'Sure' } } },
  });
  await tab.to('');
  await has(tab, '#needs', 'Which one?');
  await focus(tab, '#needs [data-ask]', 'Answer…: bot / five');
  await tab.keyboard.press('Enter');
  await tab.waitForSelector('dialog[open] input[name=choice]');
  await inspect(tab, 'a question');
  await focus(tab, 'dialog input[name=choice]');
  await tab.keyboard.press('ArrowDown');
  await focus(tab, 'dialog input[type=number]');
  await tab.keyboard.type('3');
  await focus(tab, '#why');
  await tab.keyboard.type('asked the guest');
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'Answered');
  const p = (await daemon.api('GET', '/v1/prompts')).prompts.find((x) => x.question === 'Which one?');
  assert.equal(p.choice, 'right');
  assert.deepEqual(p.data, { nights: 3, sure: false });
  fine(tab);
});

test('a hostile state stays text', async () => {
  const evil = '</script><img src=x onerror=alert(1)><a href="http://evil.example">x</a>\u202egnp.exe\u001b[31m{{.}}';
  await daemon.api('POST', '/v1/agents/odd/runs', { run: 'x', goal: evil.replace('\u001b', ''), labels: { k: '<b onclick=alert(1)>v</b>' } });
  await daemon.api('POST', '/v1/agents/odd/checkpoints', { run: 'x', kind: 'routine', epoch: 1, state: { a: 1 } });
  await daemon.api('POST', '/v1/agents/odd/checkpoints', { run: 'x', kind: 'routine', epoch: 1, state: { [evil]: evil, '"><svg onload=alert(1)>': [evil] } });
  await daemon.api('POST', '/v1/agents/odd/drift/findings', { run: 'x', rule: 'own', severity: 'critical', message: evil.replace('\u001b', '') });
  const me = (await daemon.api('GET', '/v1/agents/odd/runs/x')).owner;
  let alerts = 0;
  tab.on('dialog', (d) => { alerts++; d.dismiss(); });
  for (const path of ['', `o/${me}/odd/x`, `o/${me}/odd/x?as=table`, 'runs', 'find?q=' + encodeURIComponent('<img src=x onerror=alert(1)>')]) {
    await tab.to(path);
    const found = await tab.evaluate(() => ({
      img: document.querySelectorAll('main img, main [onerror], main [onclick], main a[href*=evil]').length, raw: /[\u202e\u001b]/.test(document.documentElement.outerHTML),
    }));
    assert.deepEqual(found, { img: 0, raw: false }, path);
    await inspect(tab, `hostile ${path}`);
  }
  assert.equal(alerts, 0);
  fine(tab);
});

test('the daemon is killed and comes back', async () => {
  await tab.to('');
  await tab.evaluate(() => { window.same = true; });
  tab.allowed.push(/503/);
  await daemon.kill();
  await has(tab, '#away:not([hidden])', 'The daemon is away since');
  assert.ok((await text(tab, '#needs')).includes('Needs you'), 'what was there has gone');
  await daemon.start();
  await tab.waitForSelector('#away[hidden]', { timeout: 30_000 });
  assert.equal(await tab.evaluate(() => window.same), true);
  fine(tab);
});

test('a hidden tab asks nothing', async () => {
  await tab.to('');
  const other = await browser.newPage();
  await other.bringToFront();
  await tab.evaluate(() => { Object.defineProperty(document, 'hidden', { value: true, configurable: true }); });
  let asked = 0;
  const count = () => { asked++; };
  tab.on('request', count);
  await new Promise((done) => setTimeout(done, 4500));
  tab.off('request', count);
  assert.equal(asked, 0);
  await other.close();
  fine(tab);
});

test('other ports, other names and other origins get nothing', async () => {
  const seen = [];
  const server = createServer((q, r) => { seen.push(q.headers.cookie ?? ''); r.setHeader('Content-Type', 'text/html'); r.end('<!doctype html><title>evil</title>'); });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const evil = `http://127.0.0.1:${server.address().port}`;
  const t = await browser.newPage();
  await t.goto(evil);
  assert.deepEqual(seen.filter(Boolean), [], 'a cookie went to another port');
  const attack = await t.evaluate(async (origin, base) => {
    const tries = {};
    const go = async (name, path, init) => { try { const r = await fetch(origin + path, init); tries[name] = r.type === 'opaque' ? 'opaque' : r.status; } catch { tries[name] = 'refused'; } };
    await go('read', base, { credentials: 'include' });
    await go('style', '/', {});
    await go('write', base + 'act/resolve', { method: 'POST', mode: 'no-cors', credentials: 'include', body: new URLSearchParams({ csrf: 'x' }) });
    tries.frame = await new Promise((done) => {
      const f = document.createElement('iframe');
      f.onload = () => { let inside = ''; try { inside = f.contentDocument?.body?.innerText ?? ''; } catch { inside = ''; } done(inside); };
      f.src = origin + base;
      document.body.append(f);
    });
    return tries;
  }, console_.origin, tab.base);
  assert.equal(attack.read, 'refused');
  assert.equal(attack.style, 'refused');
  assert.ok(['refused', 'opaque'].includes(attack.write));
  assert.equal(attack.frame, '');
  await t.close();
  server.close();
  const rebound = await new Promise((done) => get(console_.origin + '/', { headers: { Host: `evil.example:${new URL(console_.origin).port}` } }, (r) => { r.resume(); done(r.statusCode); }));
  assert.equal(rebound, 421);
});

test("another user's browser is not answered", { skip: process.getuid() !== 0 && 'only root can start programs of another user' }, async () => {
  const folder = mkdtempSync('/tmp/con-other-');
  chownSync(folder, 1002, 1002);
  const wrapper = join(folder, 'chromium.sh');
  writeFileSync(wrapper, `#!/bin/sh\nexport HOME=${folder} XDG_RUNTIME_DIR=${folder}\nexec setpriv --reuid 1002 --regid 1002 --clear-groups ${browser.process().spawnfile} "$@"\n`);
  chmodSync(wrapper, 0o755);
  const link = await console_.link();
  assert.throws(() => execFileSync('setpriv', ['--reuid', '1002', '--regid', '1002', '--clear-groups', process.execPath, '-e',
    `require('http').get('${link}', () => process.exit(0)).on('error', () => process.exit(7))`], { stdio: 'ignore' }), (e) => e.status === 7);
  const theirs = await puppeteer.launch({ executablePath: wrapper, userDataDir: join(folder, 'profile'), args: ['--no-sandbox', '--disable-gpu'] });
  try {
    const t = await theirs.newPage();
    await assert.rejects(t.goto(link), /net::ERR_/);
  } finally {
    await theirs.close();
    rmSync(folder, { recursive: true, force: true });
  }
  await open(tab, console_); // and the link still opens for whom it was made; this is another session of the same browser
});

test('every screen in both widths and themes: nothing wider than it, no violation, pictures', async () => {
  const d = await startDaemon();
  d.run('demo', '--data', '--pace', '3000');
  const c = await startConsole(d);
  const t = await newTab(browser, c);
  await open(t, c);
  const me = d.json('runs')?.runs?.[0]?.owner ?? (await d.api('GET', '/v1/agents/coder/runs')).runs[0].owner;
  const run = `o/${me}/coder/fix-1482`;
  const screens = { overview: '', runs: 'runs?group=agent', run, 'run-table': `${run}?as=table`, tree: `o/${me}/coder/fix-1490/tree`, drift: 'drift', storage: 'storage', audit: 'audit', system: 'system', find: 'find?q=1490',
    'what-if': 'drift/whatif', policy: `ask/policy?owner=${me}&agent=coder` };
  for (const [name, path] of Object.entries(screens)) {
    for (const [width, viewport] of [[1440, wide], [390, narrow]]) {
      await t.setViewport(viewport);
      for (const color of ['light', 'dark']) {
        await t.to(path);
        await theme(t, color);
        await inspect(t, `${name} ${width} ${color}`);
        await t.screenshot({ path: join(shots, `${name}-${width}-${color}.png`) });
        if (name === 'system') await (await t.$('#settings')).screenshot({ path: join(shots, `settings-${width}-${color}.png`) });
      }
    }
  }
  await t.setViewport(wide);
  await t.to('');
  await theme(t, 'auto');
  for (const [key, path] of [['r', 'runs'], ['d', 'drift'], ['s', 'storage'], ['a', 'audit'], ['y', 'system'], ['o', '']]) {
    await Promise.all([t.waitForNavigation(), t.keyboard.press('g').then(() => t.keyboard.press(key))]);
    assert.equal(new URL(t.url()).pathname, t.base + path);
  }
  await t.keyboard.press('/');
  assert.equal(await t.evaluate(() => document.activeElement.id), 'find');
  fine(t);
  await t.close();
  await c.stop();
  await d.stop();
});

test('pages are read and forms are sent without script', async () => {
  await lost('six');
  const t = await newTab(browser, console_);
  await open(t, console_);
  await until('it waits', async () => (await operation('six')).status === 'uncertain');
  await t.setJavaScriptEnabled(false);
  await t.to('');
  const href = await t.$$eval('#needs [data-ask]', (list) => list.find((a) => a.textContent.includes('It did: bot / six'))?.href);
  assert.ok(href, await t.$eval('#needs', (e) => e.textContent));
  await t.goto(href);
  await t.type('#why', 'seen in the shop');
  await Promise.all([t.waitForNavigation(), t.click('.pri')]);
  assert.ok((await t.$eval('.note', (e) => e.textContent)).includes('took effect'));
  assert.equal((await operation('six')).status, 'succeeded');
  fine(t);
  await t.close();
});
