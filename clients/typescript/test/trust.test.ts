// Whom the client speaks to. The other users are real ones, so this needs root.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { Sidecar } from 'ckptsidecar';
import { folder, World } from './world.js';

const root = process.geteuid?.() === 0;
const skip = root ? false : 'needs root, to act as several users';
const squatter = 1001;
const quick = { deadline: 50, failOpen: false, onWarning: () => undefined };

/** A program of another user that listens and notes what it is sent. */
async function squat(path: string, heard: string, uid: number): Promise<void> {
  const code = `
    const { appendFileSync } = require('node:fs');
    process.umask(0);
    require('node:net').createServer((s) => s.on('data', (d) => appendFileSync(${JSON.stringify(heard)}, d)).on('error', () => {}))
      .listen(${JSON.stringify(path)}, () => console.log('ready'));`;
  const child = spawn(process.execPath, ['-e', code], { uid, gid: uid, stdio: ['ignore', 'pipe', 'inherit'] });
  after(() => child.kill('SIGKILL'));
  await new Promise((done) => child.stdout.once('data', done));
}

test('another user who listens gets nothing, and the error names both', { skip }, async () => {
  const dir = folder();
  const heard = join(dir, 'heard');
  const path = join(dir, 's');
  writeFileSync(heard, '');
  for (const made of [dir, heard]) chownSync(made, squatter, squatter);
  await squat(path, heard, squatter);
  const sidecar = new Sidecar({ ...quick, socket: path });
  await assert.rejects(sidecar.agent('a').save({ secret: 'canary' }), (error: Error & { code: string }) => {
    assert.equal(error.code, 'no_daemon');
    assert.match(error.message, /uid 1001 listens there, and this process is uid 0/);
    assert.ok(error.message.includes(path));
    return true;
  });
  sidecar.close();
  assert.equal(readFileSync(heard, 'utf8'), '');
});

test('a socket that others could replace is refused', { skip }, async () => {
  const world = await World.start();
  assert.equal((await world.client(quick).version()).name, 'ckptsidecar');
  chmodSync(world.dir, 0o777);
  await assert.rejects(new Sidecar({ ...quick, socket: world.socket }).version(), { message: /others can write in/ });
  chmodSync(world.dir, 0o700);
});

test('the service has the place that root gave it', { skip }, async (t) => {
  let top: string;
  try {
    top = mkdtempSync('/run/ckpt-ts-'); // nobody but root writes above it
  } catch {
    return t.skip('needs a folder below which only root writes');
  }
  after(() => rmSync(top, { recursive: true, force: true }));
  chmodSync(top, 0o755);
  let n = 0;
  const asked = async (keeper: number, owner: number, mode: number): Promise<string> => {
    const dir = join(top, String(n++));
    mkdirSync(dir);
    const path = join(dir, 's');
    const server = createServer((socket) => socket.end('HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n'));
    await new Promise<void>((done) => server.listen(path, done));
    chownSync(path, owner, owner);
    chownSync(dir, keeper, keeper);
    chmodSync(dir, mode);
    const sidecar = new Sidecar({ ...quick, socket: path });
    const said = await sidecar.version().then(() => '', (error: Error) => error.message);
    sidecar.close();
    server.close();
    return said;
  };
  const spoken = /HTTP status 404/;
  assert.match(await asked(977, 977, 0o755), spoken, 'the folder of a system account');
  assert.match(await asked(0, 1003, 0o755), spoken, "root's folder, and a socket that root gave away");
  assert.match(await asked(1003, 1003, 0o755), /uid 1003 listens there/, "a person's folder");
  assert.match(await asked(1003, 0, 0o755), /uid 1003 listens there/, "a socket of root in a person's folder");
  assert.match(await asked(977, 977, 0o775), /uid 977 listens there/, 'a folder in which a group writes');
  assert.match(await asked(65534, 65534, 0o755), /uid 65534 listens there/, 'nobody');
});
