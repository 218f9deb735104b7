// Every screen in both widths and themes, from a busy host's worth of made-up runs.
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect, narrow, newTab, open, shots, startConsole, startDaemon, theme, wide } from '../setup.mjs';
import { hostile, screensOf } from './busy.mjs';
import { fine, world } from './world.mjs';

const busy = startBusy();

/** Fills a daemon while other stories play. */
async function startBusy() {
  const d = await startDaemon();
  await d.later('demo', '--data', '--pace', '3000');
  await hostile(d);
  return d;
}

test('every screen in both widths and themes: nothing wider than it, no violation, pictures', async () => {
  const d = await busy;
  const c = await startConsole(d);
  const state = (await d.api('GET', '/v1/agents/coder/checkpoints?run=fix-1482&limit=1')).checkpoints[0], me = state.owner;
  await Promise.all([[1440, wide], [390, narrow]].map(async ([width, viewport]) => {
    const t = await newTab(world.browser, c, viewport);
    await open(t, c);
    for (const [name, path] of Object.entries(screensOf(me, state))) await look(t, name, path, width);
    fine(t);
    await t.close();
  }));
  await c.stop();
  await d.stop();
});

/** Looks at a screen in both themes, of which only the colors differ. */
async function look(t, name, path, width) {
  await t.to(path);
  for (const color of ['light', 'dark']) {
    await theme(t, color);
    await inspect(t, `${name} ${width} ${color}`, color === 'dark' ? ['color-contrast'] : undefined);
    await t.screenshot({ path: join(shots, `${name}-${width}-${color}.png`), optimizeForSpeed: true });
    if (name === 'system') await (await t.$('#settings')).screenshot({ path: join(shots, `settings-${width}-${color}.png`) });
  }
}
