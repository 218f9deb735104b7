// Photographs pages of a daemon that is there: node shoot.mjs SOCKET PATH... into dist/console-shots.
import { join } from 'node:path';
import { inspect, narrow, newTab, open, shots, startBrowser, startConsole, theme, wide } from './setup.mjs';

const [socket, ...paths] = process.argv.slice(2);
const c = await startConsole({ socket });
const browser = await startBrowser();
process.on('unhandledRejection', (e) => { console.error(e); browser.process().kill('SIGKILL'); process.exit(1); });
process.on('uncaughtException', (e) => { console.error(e); browser.process().kill('SIGKILL'); process.exit(1); });
const t = await newTab(browser, c);
await open(t, c);
for (const path of paths.length ? paths : ['']) {
  const name = path.split('?')[0].replaceAll('/', '_') || 'overview';
  for (const [width, viewport] of [[1440, wide], [390, narrow]]) {
    await t.setViewport(viewport);
    for (const color of ['light', 'dark']) {
      await t.to(path, { waitUntil: 'load' });
      await theme(t, color);
      if (!process.env.NO_AXE) await inspect(t, `${name} ${width} ${color}`);
      await t.screenshot({ path: join(shots, `${name}-${width}-${color}.png`), fullPage: Boolean(process.env.FULL) });
    }
  }
  console.log(name, await t.evaluate(() => document.querySelectorAll('*').length), 'nodes');
}
console.log(t.bad.join('\n'));
await browser.close();
await c.stop();
process.exit(t.bad.length ? 1 : 0);
