// Every story of an operator by the keyboard alone: Tab, Enter, arrows and letters. No click, and no focus that a script sets.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect, newTab, shots, until } from '../setup.mjs';
import { api, fine, has, lost, me, openForm, operation, tabTo, text, typeOver, world } from './world.mjs';

test('keys: a run is killed in an operation, appears without a reload, and is answered and resumed', async () => {
  const { tab } = world;
  await tab.to('');
  await has(tab, '#needs', 'Nothing waits for you');
  await tab.evaluate(() => { window.same = true; });
  await lost('one');
  await has(tab, '#needs', 'Did “push branch” take effect?');
  assert.equal(await tab.evaluate(() => window.same), true, 'the page was loaded anew');
  await openForm(tab, '/ask/resolve', 'It did not');
  assert.equal(await tab.evaluate(() => document.activeElement.id), 'why', 'the form does not take the focus');
  await inspect(tab, 'a form');
  await tab.screenshot({ path: join(shots, 'form-1440-light.png') });
  await tab.keyboard.press('Escape');
  await tab.waitForSelector('dialog[open]', { hidden: true });
  assert.match(await tab.evaluate(() => document.activeElement.textContent), /^It did not/, 'a closed form does not give the focus back');
  await tab.keyboard.press('Enter');
  await tab.waitForSelector('dialog[open] #why');
  assert.equal((await operation('one')).status, 'uncertain', 'it is done before anybody has said why');
  await tab.keyboard.type('looked at the server: no such branch');
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'did not take effect');
  await has(tab, '#needs', 'one may go on; nobody runs it');
  assert.equal((await operation('one')).status, 'failed');
  assert.ok((await api('GET', '/v1/audit?action=resolve_operation')).audit.some((a) => a.reason.includes('no such branch')), 'the reason is not in the audit log');
  assert.equal(await text(tab, '#needs .run code'), 'ckptsidecar exec --agent bot --run one -- COMMAND');
  await tabTo(tab, 'the copy of the command', (at) => at.tag === 'BUTTON' && at.text === 'Copy');
  await tab.evaluate(() => { navigator.clipboard.writeText = async (words) => { window.copied = words; }; });
  await tab.keyboard.press('Enter');
  await has(tab, '#needs .run button', 'Copied');
  const words = (await tab.evaluate(() => window.copied)).replace('COMMAND', 'true').split(' ').slice(1);
  await world.daemon.later(...words.slice(0, -2), '--socket', world.daemon.socket, '--', 'true'); // what the row says, with the agent's command
  await has(tab, '#needs', 'Nothing waits for you');
  fine(tab);
});

test('keys: from the overview to a run, through its checkpoints, with zoom, comparison and a fork of an edited state', async () => {
  const { tab } = world;
  await tab.to('');
  await tabTo(tab, 'the way past the rail', (at) => at.text === 'To the content');
  await tab.evaluate(() => { window.same = true; });
  await tab.keyboard.press('Enter');
  await tab.waitForFunction(() => location.hash === '#main');
  assert.equal(await tab.evaluate(() => window.same && document.activeElement.id), 'main', 'the way past the rail loads the page anew');
  await tabTo(tab, 'the run', (at) => at.tag === 'A' && /\/bot\/one(\?|$)/.test(at.href));
  await Promise.all([tab.waitForNavigation(), tab.keyboard.press('Enter')]);
  await tabTo(tab, 'the checkpoints of the recorder', (at) => at.role === 'option');
  const now = await text(tab, '#pickedname');
  await tab.keyboard.press('Home');
  await has(tab, '#pickedname', 'Checkpoint 1');
  await tab.keyboard.press('ArrowRight');
  await has(tab, '#pickedname', 'Checkpoint 2');
  assert.notEqual(now, await text(tab, '#pickedname'));
  assert.equal(await tab.evaluate(() => document.activeElement.getAttribute('aria-selected')), 'true', 'the focus does not go with the choice');
  await has(tab, '.diff', 'c2');
  await tab.keyboard.press('+');
  await tab.keyboard.press('+');
  assert.ok(await tab.evaluate(() => Number(document.querySelector('.win').getAttribute('width'))) < 700, 'it does not zoom');
  await tab.keyboard.press('0');
  await tabTo(tab, 'what to compare with', (at) => at.id === 'against');
  await tab.keyboard.press('Tab'); // zoom works wherever the focus is, but not in a field
  await tab.keyboard.type('++');
  assert.ok(await tab.evaluate(() => Number(document.querySelector('.win').getAttribute('width'))) < 700, 'it does not zoom from elsewhere');
  await tab.keyboard.press('0');
  await tabTo(tab, 'what to compare with', (at) => at.id === 'against');
  await tab.keyboard.type('4'); // a letter chooses the option that begins with it: the last in view
  await has(tab, '.diff', 'c3');
  assert.equal(await tab.evaluate(() => document.activeElement.id), 'against', 'the comparison loses the focus');
  await openForm(tab, '/ask/fork', 'Fork', '#name');
  await typeOver(tab, 'one');
  tab.allowed.push(/422.*act\/fork/);
  await tabTo(tab, 'the state', (at) => at.tag === 'SUMMARY' && at.form);
  await tab.keyboard.press('Enter');
  await tabTo(tab, 'the text of the state', (at) => at.id === 'state');
  await editNumber(tab, '"n": 2', '99');
  await tabTo(tab, 'why', (at) => at.id === 'why');
  await tab.keyboard.type('to try another plan');
  await tabTo(tab, 'the button', (at) => at.tag === 'BUTTON' && at.text === 'Fork');
  await tab.keyboard.press('Enter');
  await has(tab, 'dialog .sendfail', 'already has a run one: choose another name');
  await tabTo(tab, 'the name', (at) => at.id === 'name'); // what was typed is still there
  await typeOver(tab, 'two');
  await tabTo(tab, 'the button', (at) => at.tag === 'BUTTON' && at.text === 'Fork');
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'exec --agent bot --run two');
  assert.ok((await api('GET', '/v1/agents/bot/runs/two')).forked_from);
  const page = await api('GET', '/v1/agents/bot/checkpoints?run=two');
  assert.equal((await api('GET', `/v1/checkpoints/${page.checkpoints[0].id}`)).state.n, 99);
  fine(tab);
});

/** Changes the number at the end of a line of the text that has the focus. */
async function editNumber(t, line, number) {
  const at = await t.evaluate((l) => document.activeElement.value.split('\n').findIndex((x) => x.includes(l)), line);
  const comma = await t.evaluate((n) => document.activeElement.value.split('\n')[n].endsWith(','), at);
  await t.keyboard.down('Control');
  await t.keyboard.press('Home');
  await t.keyboard.up('Control');
  for (let i = 0; i < at; i++) await t.keyboard.press('ArrowDown');
  await t.keyboard.press('End');
  if (comma) await t.keyboard.press('ArrowLeft');
  await t.keyboard.press('Backspace');
  await t.keyboard.type(number);
}

test('keys: an operation is resolved on the page of its run, and a checkpoint is pinned', async () => {
  await lost('keys');
  await until('it waits', async () => (await operation('keys')).status === 'uncertain');
  const { tab } = world;
  await tab.to('');
  await has(tab, '#needs', 'bot / keys');
  await tabTo(tab, 'the run', (at) => at.tag === 'A' && /\/bot\/keys(\?|$)/.test(at.href));
  await Promise.all([tab.waitForNavigation(), tab.keyboard.press('Enter')]);
  await has(tab, '#pickedname', 'Checkpoint 3');
  await openForm(tab, '/ask/pin', 'Pin');
  await tab.keyboard.type('a good place');
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'is pinned');
  await openForm(tab, '/ask/resolve', 'It did');
  await tab.focus('dialog [name=reason]'); // the result comes first, and is optional
  await tab.keyboard.type('seen on the server');
  await tabTo(tab, 'the button of the form', (at) => at.tag === 'BUTTON' && at.text === 'It did');
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'took effect');
  assert.equal((await operation('keys')).status, 'succeeded');
  fine(tab);
});

test('keys: all findings of a run are dismissed with one reason', async () => {
  const { tab } = world;
  await api('POST', '/v1/agents/bot/runs', { run: 'four' });
  await api('POST', '/v1/agents/bot/checkpoints', { run: 'four', kind: 'routine', epoch: 1, state: { n: 1 } });
  for (const n of [1, 2, 3]) {
    await api('POST', '/v1/agents/bot/drift/findings', { run: 'four', rule: `own-${n}`, severity: n === 1 ? 'critical' : 'warn', message: `it is odd ${n}`, since_seq: 0 });
  }
  await tab.to(`o/${await me('four')}/bot/four`);
  await has(tab, '#findings', '3 open');
  await openForm(tab, '/ask/dismiss', 'Dismiss all');
  await tab.keyboard.type('the data was a test');
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'Dismissed 3 findings');
  await has(tab, '#findings', '0 open');
  assert.notEqual(await tab.evaluate(() => document.activeElement.tagName), 'BODY', 'the focus is lost with what was acted upon');
  fine(tab);
});

test('keys: a question of a run is answered with a form made from its schema', async () => {
  const { tab } = world;
  await api('POST', '/v1/agents/bot/runs', { run: 'five' });
  await api('POST', '/v1/agents/bot/runs/five/prompts', {
    epoch: 1, key: 'k', question: 'Which one?', choices: ['left', 'right'],
    schema: { type: 'object', required: ['nights'], properties: { nights: { type: 'integer', title: 'Nights' }, sure: { type: 'boolean', title: 'Sure' } } },
  });
  await tab.to('');
  await has(tab, '#needs', 'Which one?');
  await openForm(tab, '/ask/answer', 'Answer', 'input[name=choice]');
  await inspect(tab, 'a question');
  await tab.keyboard.press('ArrowDown'); // from the first one, which nothing has chosen, to the second
  await tab.waitForFunction(() => document.querySelector('dialog input[name=choice]:checked')?.parentElement.textContent.includes('right'));
  await tabTo(tab, 'the nights', (at) => at.type === 'number');
  await tab.keyboard.type('3');
  await tabTo(tab, 'sure', (at) => at.type === 'checkbox');
  await tab.keyboard.press(' ');
  await tabTo(tab, 'why', (at) => at.id === 'why');
  await tab.keyboard.type('asked the guest');
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'Answered');
  const p = (await api('GET', '/v1/prompts')).prompts.find((x) => x.question === 'Which one?');
  assert.equal(p.choice, 'right');
  assert.deepEqual(p.data, { nights: 3, sure: true });
  fine(tab);
});

test('keys: two tabs resolve the same operation, and a form for a run that has moved on does nothing', async () => {
  const { tab } = world;
  await lost('three');
  await tab.to('');
  await has(tab, '#needs', 'bot / three');
  const second = await newTab(world.browser, world.console);
  second.allowed.push(/409/);
  await second.goto(tab.url());
  for (const [t, label] of [[tab, 'It did'], [second, 'It did not']]) {
    await t.bringToFront();
    await openForm(t, '/ask/resolve', label);
    await t.focus('dialog [name=reason]');
    await t.keyboard.type('said by one of two');
  }
  await tab.bringToFront();
  await tab.keyboard.press('Enter');
  await has(tab, '.note', 'took effect');
  await second.bringToFront();
  await second.keyboard.press('Enter');
  await has(second, 'dialog', 'changed in the meantime');
  await tabTo(second, 'a way out of the dialog', (at) => at.tag === 'BUTTON' && at.text === 'Close');
  await second.keyboard.press('Enter');
  await second.waitForSelector('dialog[open]', { hidden: true });
  assert.equal((await operation('three')).status, 'succeeded');
  fine(second);
  await second.close();
  await tab.bringToFront();
  fine(tab);
});

test('keys: letters go to every page, rows are reached, and a policy is changed', async () => {
  const { tab } = world;
  await tab.to('');
  for (const [key, path] of [['r', 'runs'], ['d', 'drift'], ['a', 'audit'], ['y', 'system'], ['o', ''], ['s', 'storage']]) {
    await Promise.all([tab.waitForNavigation(), tab.keyboard.press('g').then(() => tab.keyboard.press(key))]);
    assert.equal(new URL(tab.url()).pathname, tab.base + path);
  }
  await tabTo(tab, 'the policy of an agent', (at) => at.tag === 'A' && at.href.includes('/ask/policy'));
  await Promise.all([tab.waitForNavigation(), tab.keyboard.press('Enter')]);
  await tabTo(tab, 'routine_keep', (at) => at.name === 'routine_keep');
  await typeOver(tab, '7');
  await tabTo(tab, 'the difference', (at) => at.tag === 'BUTTON' && at.text === 'Show the difference');
  await Promise.all([tab.waitForNavigation(), tab.keyboard.press('Enter')]);
  await has(tab, 'pre.told', '+ routine_keep: 7');
  await tabTo(tab, 'why', (at) => at.id === 'why');
  await tab.keyboard.type('seven will do');
  await Promise.all([tab.waitForNavigation(), tab.keyboard.press('Enter')]);
  await has(tab, '.note', 'The policy of bot is changed');
  assert.equal((await api('GET', '/v1/agents/bot/policy')).routine_keep, 7);
  await tab.keyboard.press('/');
  assert.equal(await tab.evaluate(() => document.activeElement.id), 'find');
  await tab.keyboard.type('four');
  await Promise.all([tab.waitForNavigation(), tab.keyboard.press('Enter')]);
  await tabTo(tab, 'the run that was found', (at) => at.tag === 'A' && /\/bot\/four(\?|$)/.test(at.href));
  await tab.keyboard.press('?');
  await tab.waitForSelector('#keys[open]');
  await tab.keyboard.press('Escape');
  await tab.waitForSelector('#keys[open]', { hidden: true });
  for (const path of ['', 'runs', 'drift', 'storage', 'audit', 'system']) {
    await tab.to(path);
    await walk(tab, path);
  }
  fine(tab);
});

test('keys: Ctrl-K goes to pages and runs, and opens forms', async () => {
  const { tab } = world;
  const press = async () => { await tab.keyboard.down('Control'); await tab.keyboard.press('k'); await tab.keyboard.up('Control'); await tab.waitForSelector('#palette[open]'); };
  await tab.to('');
  await press();
  await inspect(tab, 'the palette');
  await tab.keyboard.type('stor');
  await has(tab, '#palette ul', 'Storage');
  await Promise.all([tab.waitForNavigation(), tab.keyboard.press('Enter')]);
  assert.equal(new URL(tab.url()).pathname, tab.base + 'storage');
  await press();
  await tab.keyboard.type('four');
  await has(tab, '#palette ul', 'bot / four');
  await tab.keyboard.press('ArrowDown');
  await Promise.all([tab.waitForNavigation(), tab.keyboard.press('Enter')]);
  await press();
  await tab.keyboard.type('restore');
  await has(tab, '#palette ul', 'Restore');
  await tab.keyboard.press('Enter');
  await tab.waitForSelector('#ask[open] #why');
  await tab.keyboard.press('Escape');
  fine(tab);
});

/** Goes through a whole page by Tab: every stop is seen, and each thing to press is a stop. */
async function walk(t, path) {
  const all = await t.evaluate(() => {
    const wanted = [...document.querySelectorAll('main a[href], main button, main input:not([type=hidden]), main select, main textarea, main summary, main [tabindex="0"]')];
    const shown = wanted.filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.disabled && !(e.closest('details:not([open])') && e.tagName !== 'SUMMARY') && e.getAttribute('tabindex') !== '-1');
    shown.forEach((e) => { e.dataset.stop = 'missed'; });
    return shown.length;
  });
  for (let i = 0; i < all + 30; i++) {
    await tabTo(t, 'anything', () => true);
    await t.evaluate(() => { const e = document.activeElement; if (e instanceof HTMLElement || e instanceof SVGElement) delete e.dataset.stop; });
  }
  const missed = await t.$$eval('[data-stop]', (list) => list.map((e) => `${e.tagName} ${e.textContent.trim().slice(0, 40)}`));
  assert.deepEqual(missed, [], `${path}: Tab does not come to these`);
}
