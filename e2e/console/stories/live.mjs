// A daemon that goes and comes back, and tabs that nobody sees.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fine, has, text, world } from './world.mjs';

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
