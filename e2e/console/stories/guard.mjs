// Who must get nothing, and what must do nothing.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, get } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import puppeteer from 'puppeteer-core';
import { inspect, newTab, open, until } from '../setup.mjs';
import { api, fine, lost, operation, world } from './world.mjs';

test('a hostile state stays text', async () => {
  const evil = '</script><img src=x onerror=alert(1)><a href="http://evil.example">x</a>\u202egnp.exe\u001b[31m{{.}}';
  await api('POST', '/v1/agents/odd/runs', { run: 'x', goal: evil.replace('\u001b', ''), labels: { k: '<b onclick=alert(1)>v</b>' } });
  await api('POST', '/v1/agents/odd/checkpoints', { run: 'x', kind: 'routine', epoch: 1, state: { a: 1 } });
  await api('POST', '/v1/agents/odd/checkpoints', { run: 'x', kind: 'routine', epoch: 1, state: { [evil]: evil, '"><svg onload=alert(1)>': [evil] } });
  await api('POST', '/v1/agents/odd/drift/findings', { run: 'x', rule: 'own', severity: 'critical', message: evil.replace('\u001b', '') });
  const me = (await api('GET', '/v1/agents/odd/runs/x')).owner;
  let alerts = 0;
  world.tab.on('dialog', (d) => { alerts++; d.dismiss(); });
  for (const path of ['', `o/${me}/odd/x`, `o/${me}/odd/x?as=table`, 'runs', 'find?q=' + encodeURIComponent('<img src=x onerror=alert(1)>')]) {
    await world.tab.to(path);
    const found = await world.tab.evaluate(() => ({
      img: document.querySelectorAll('main img, main [onerror], main [onclick], main a[href*=evil]').length, raw: /[\u202e\u001b]/.test(document.documentElement.outerHTML),
    }));
    assert.deepEqual(found, { img: 0, raw: false }, path);
    await inspect(world.tab, `hostile ${path}`);
  }
  assert.equal(alerts, 0);
  fine(world.tab);
});

test('other ports, other names and other origins get nothing', async () => {
  const seen = [];
  const server = createServer((q, r) => { seen.push(q.headers.cookie ?? ''); r.setHeader('Content-Type', 'text/html'); r.end('<!doctype html><title>evil</title>'); });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const evil = `http://127.0.0.1:${server.address().port}`;
  const t = await world.browser.newPage();
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
  }, world.console.origin, world.tab.base);
  assert.equal(attack.read, 'refused');
  assert.equal(attack.style, 'refused');
  assert.ok(['refused', 'opaque'].includes(attack.write));
  assert.equal(attack.frame, '');
  await t.close();
  server.close();
  const rebound = await new Promise((done) => get(world.console.origin + '/', { headers: { Host: `evil.example:${new URL(world.console.origin).port}` } }, (r) => { r.resume(); done(r.statusCode); }));
  assert.equal(rebound, 421);
});

test("another user's browser is not answered", { skip: process.getuid() !== 0 && 'only root can start programs of another user' }, async () => {
  const folder = mkdtempSync('/tmp/con-other-');
  chownSync(folder, 1002, 1002);
  const wrapper = join(folder, 'chromium.sh');
  writeFileSync(wrapper, `#!/bin/sh\nexport HOME=${folder} XDG_RUNTIME_DIR=${folder}\nexec setpriv --reuid 1002 --regid 1002 --clear-groups ${world.browser.process().spawnfile} "$@"\n`);
  chmodSync(wrapper, 0o755);
  const link = await world.console.link();
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
  await open(world.tab, world.console); // and the link still opens for whom it was made; this is another session of the same browser
});

test('pages are read and forms are sent without script', async () => {
  await lost('six');
  const t = await newTab(world.browser, world.console);
  await open(t, world.console);
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
