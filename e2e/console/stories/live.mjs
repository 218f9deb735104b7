// A daemon that goes and comes back, and tabs that nobody sees.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newTab } from '../setup.mjs';
import { api, fine, has, me, text, world } from './world.mjs';

test('the daemon is killed and comes back', async () => {
  await world.tab.to('');
  await world.tab.evaluate(() => { window.same = true; });
  world.tab.allowed.push(/503/);
  await world.daemon.kill();
  await has(world.tab, '#away:not([hidden])', 'The daemon is away since');
  assert.ok((await text(world.tab, '#needs')).includes('Needs you'), 'what was there has gone');
  await world.daemon.start();
  await world.tab.waitForSelector('#away[hidden]', { timeout: 30_000 });
  assert.equal(await world.tab.evaluate(() => window.same), true);
  fine(world.tab);
});

test('no row moves away from under the pointer', async () => {
  const { tab } = world;
  const ask = (run) => api('POST', `/v1/agents/bot/runs/${run}/prompts`, { epoch: 1, key: 'k', question: `Which way does ${run} go?`, choices: ['left', 'right'] });
  for (const run of ['calm', 'new']) await api('POST', '/v1/agents/bot/runs', { run });
  const { id } = await ask('calm');
  await tab.to('');
  await has(tab, '#needs', 'Which way does calm go?');
  const answer = (run) => tab.evaluateHandle((r) => [...document.querySelectorAll('#needs li')].find((li) => li.textContent.includes(`does ${r} go`))?.querySelector('.btn'), run);
  const place = async (run) => (await (await answer(run)).asElement()?.boundingBox())?.y;
  const before = await place('calm');
  await (await answer('calm')).hover();
  await ask('new');
  await has(tab, '#needs .new', 'Which way does new go?');
  assert.equal(await place('calm'), before, 'the row moved');
  assert.ok(await place('new') > before, 'the new row is not at the end');
  assert.match(await text(tab, '#said'), /Which way does new go/);
  await api('POST', `/v1/prompts/${id}/answer`, { choice: 'left', reason: 'said elsewhere' });
  await has(tab, '#needs .gone', 'Which way does calm go?');
  assert.equal(await tab.$eval('#needs .gone', (li) => li.inert), true, 'a row that is gone can be pressed');
  await tab.mouse.move(5, 5);
  await tab.waitForFunction(() => !document.querySelector('#needs .gone'), { timeout: 30_000 });
  fine(tab);
});

test('a transcript follows its run, and a mark of the recorder leads to its step', async () => {
  const { tab } = world;
  await api('POST', '/v1/agents/bot/runs', { run: 'told' });
  const step = (n, more) => api('POST', '/v1/agents/bot/runs/told/steps', { key: `s${n}`, name: 'run_tests', epoch: 1, status: 'succeeded', args: { only: `test_${n}` }, result: `run ${n} is fine\nand done`, duration_ms: 10, ...more });
  for (let n = 1; n <= 60; n++) await step(n);
  await api('POST', '/v1/agents/bot/checkpoints', { run: 'told', kind: 'routine', epoch: 1, state: { n: 1 } });
  const run = `o/${await me('told')}/bot/told`;
  await tab.to(run + '/steps');
  await has(tab, '#steps', 'test_60');
  await tab.evaluate(() => { window.same = true; scrollTo(0, document.documentElement.scrollHeight); });
  await step(61, { status: 'failed', error: '2 tests failed: test_total, test_empty' });
  await has(tab, '#steps', '2 tests failed: test_total');
  assert.equal(await tab.evaluate(() => window.same), true, 'the page was loaded anew');
  await tab.waitForFunction(() => innerHeight + scrollY >= document.documentElement.scrollHeight - 1); // whoever reads the end, stays there
  const [earlier] = await tab.$$('::-p-text(Earlier steps)');
  await Promise.all([tab.waitForNavigation(), earlier.click()]);
  await has(tab, '#steps', 'test_1');
  await tab.to(run);
  await has(tab, '#rec .to title', 'run_tests: succeeded');
  await Promise.all([tab.waitForNavigation(), tab.evaluate(() => [...document.querySelectorAll('#rec .to')].at(-1).querySelector('rect').dispatchEvent(new MouseEvent('click', { bubbles: true })))]);
  assert.match(await text(tab, '#steps .chosen'), /2 tests failed/);
  assert.equal(await tab.evaluate(() => document.querySelector(':target')?.className), 'chosen', 'the link does not lead to the step');
  await tab.to(run + '/steps?hide=ok');
  await has(tab, '#causes', '2 tests failed: test_total, test_empty');
  assert.doesNotMatch(await text(tab, '#steps'), /test_60/);
  fine(tab);
});

test('a hidden tab tells what needs a person, if that is wanted', async () => {
  const { tab } = world;
  await tab.to('');
  await tab.evaluate(() => {
    localStorage.setItem('tell', 'yes');
    window.notices = [];
    window.Notification = class { static permission = 'granted'; constructor(title, more) { window.notices.push(`${title}: ${more.body}`); } };
    Object.defineProperty(document, 'hidden', { value: true, configurable: true });
  });
  const before = Number(/^\((\d+)\)/.exec(await tab.title())?.[1] ?? 0);
  await api('POST', '/v1/agents/bot/runs', { run: 'asks' });
  await api('POST', '/v1/agents/bot/runs/asks/prompts', { epoch: 1, key: 'k', question: 'Is anybody there?', choices: ['yes'] });
  await tab.waitForFunction((n) => document.title.startsWith(`(${n + 1}) Overview`), { timeout: 30_000, polling: 100 }, before);
  assert.deepEqual(await tab.evaluate(() => window.notices), [`${before + 1} need you: Is anybody there?`]);
  assert.match(await tab.$eval('link[rel=icon]', (l) => l.href), /hot\.svg$/);
  await tab.evaluate(() => localStorage.removeItem('tell'));
  fine(tab);
});

test('a link that was sent asks at the door, and then goes to the page', async () => {
  const t = await newTab(world.browser, world.console);
  await api('POST', '/v1/agents/bot/runs', { run: 'sent' });
  await api('POST', '/v1/agents/bot/runs/sent/steps', { key: 'a/b', name: 'look', epoch: 1, status: 'succeeded' });
  await t.goto(`${world.console.origin}/o/${await me('sent')}/bot/sent/steps?at=a%2Fb#step-of-it`);
  await t.type('#code', new URL(await world.console.link()).hash.slice(1));
  await Promise.all([t.waitForNavigation(), t.keyboard.press('Enter')]);
  await has(t, '#steps .chosen', 'look');
  assert.match(t.url(), /\/s\/[^/]+\/o\/[^/]+\/bot\/sent\/steps\?at=a%2Fb#step-of-it$/);
  fine(t);
  await t.close();
});

test('a hidden tab asks nothing', async () => {
  await world.tab.to('');
  const other = await world.browser.newPage();
  await other.bringToFront();
  await world.tab.evaluate(() => { Object.defineProperty(document, 'hidden', { value: true, configurable: true }); });
  let asked = 0;
  const count = () => { asked++; };
  world.tab.on('request', count);
  await new Promise((done) => setTimeout(done, 4500));
  world.tab.off('request', count);
  assert.equal(asked, 0);
  await other.close();
  fine(world.tab);
});
