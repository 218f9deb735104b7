import assert from 'node:assert/strict';
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { Sidecar } from 'ckptsidecar';
import type { Ask } from '../dist/esm/ask.js';
import { Connection } from '../dist/esm/connection.js';
import { pipes, runtimeFolder, sidIn } from '../dist/esm/endpoint.js';
import { bin, folder, until, World } from './world.js';

const windows = process.platform === 'win32';
const kept = { ...process.env };
after(() => Object.assign(process.env, kept));

function environment(values: Record<string, string | undefined>): void {
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
}

const quick = { deadline: 50, failOpen: false, onWarning: () => undefined };

test('the daemon is found by the setting, the variable, the user and the system', { skip: windows }, async () => {
  const one = await World.start();
  const runtime = folder();
  environment({ CKPTSIDECAR_SOCKET: undefined, XDG_RUNTIME_DIR: runtime });
  await assert.rejects(new Sidecar(quick).version(), (error: Error & { code: string }) => {
    assert.equal(error.code, 'no_daemon');
    assert.match(error.message, new RegExp(`no daemon answers at ${join(runtime, 'ckptsidecar.sock')} or /(var/)?run/ckptsidecar/ckptsidecar.sock: `));
    return true;
  });
  environment({ CKPTSIDECAR_SOCKET: one.socket });
  assert.equal((await new Sidecar(quick).version()).name, 'ckptsidecar');
  environment({ CKPTSIDECAR_SOCKET: undefined });
  await assert.rejects(new Sidecar({ ...quick, socket: 'x'.repeat(200) }).version(), { code: 'invalid', message: /too long: it needs \d+ bytes and the system takes 10\d/ });
  writeFileSync(join(runtime, 'stale'), '');
  await assert.rejects(new Sidecar({ ...quick, socket: join(runtime, 'stale') }).version(), { code: 'no_daemon', message: /its socket is from a daemon that has ended/ });
});

test('an endpoint that was named never falls back to another daemon', { skip: windows }, async () => {
  const one = await World.start();
  const runtime = folder();
  symlinkSync(one.socket, join(runtime, 'ckptsidecar.sock'));
  environment({ CKPTSIDECAR_SOCKET: undefined, XDG_RUNTIME_DIR: runtime });
  assert.equal((await new Sidecar(quick).version()).name, 'ckptsidecar'); // it is the user's own
  const staging = join(runtime, 'staging');
  const refused = (name: string) => ({ code: 'no_daemon', message: new RegExp(`no daemon answers at ${staging} \\(named by ${name}\\): `) });
  await assert.rejects(new Sidecar({ ...quick, socket: staging }).agent('a').save(1), refused('the setting socket'));
  environment({ CKPTSIDECAR_SOCKET: staging });
  await assert.rejects(new Sidecar(quick).agent('a').save(1), refused('CKPTSIDECAR_SOCKET'));
  environment({ CKPTSIDECAR_SOCKET: undefined });
  assert.deepEqual((await one.client().agent('a').list().catch(() => ({ checkpoints: [] }))).checkpoints, []);
});

test('the runtime folder of a user is found without its variable', { skip: windows }, () => {
  const above = folder();
  const uid = process.getuid!();
  assert.equal(runtimeFolder(above, uid), '');
  mkdirSync(join(above, String(uid)));
  mkdirSync(join(above, '4242'));
  assert.equal(runtimeFolder(above, uid), join(above, String(uid)));
  assert.equal(runtimeFolder(above, 4242), '', "another user's");
  assert.equal(runtimeFolder('', uid), '');
});

test("a user's own daemon on Windows has a pipe with the user's SID", () => {
  const sid = 'S-1-5-21-1-2-3-1001';
  assert.equal(sidIn(`"machine\\ann","${sid}"\r\n`), sid);
  assert.equal(sidIn(`"machine\\S-1-5-18","${sid}"\r\n`), sid);
  assert.equal(sidIn(`User Name SID\r\n======= ====\r\nmachine\\ann ${sid}\r\n`), sid);
  assert.equal(sidIn('ERROR: no such option\r\n'), '');
  assert.deepEqual(pipes(sid), [`\\\\.\\pipe\\ckptsidecar-${sid}`, '\\\\.\\pipe\\ckptsidecar']);
  assert.deepEqual(pipes(''), ['\\\\.\\pipe\\ckptsidecar']);
});

test("a user with a database does not get the system's daemon without a word", { skip: windows }, async () => {
  const system = await World.start();
  const state = folder();
  environment({ CKPTSIDECAR_SOCKET: undefined, XDG_STATE_HOME: state });
  const own = join(state, 'ckptsidecar', 'ckptsidecar.sock');
  const connect = (): Connection => new Connection(undefined, () => [own, system.socket]);
  const ask = { method: 'GET', path: '/v1/version' } as Ask;
  const found = connect();
  assert.equal((await found.send(ask, 10_000)).status, 200);
  found.close();
  mkdirSync(join(state, 'ckptsidecar'));
  writeFileSync(join(state, 'ckptsidecar', 'ckpt.db'), '');
  await assert.rejects(connect().send(ask, 10_000), (error: Error & { code: string }) => {
    assert.equal(error.code, 'no_daemon');
    assert.ok(error.message.includes(`your own database ${join(state, 'ckptsidecar', 'ckpt.db')} exists`), error.message);
    return true;
  });
  environment({ XDG_STATE_HOME: kept['XDG_STATE_HOME'] });
});

test('where nothing is installed, the error has the one command that helps', { skip: windows }, async () => {
  const empty = folder();
  const path = process.env['PATH'];
  environment({ PATH: empty });
  const say = (o: object): Promise<string> => new Sidecar({ ...quick, socket: join(empty, 's'), ...o }).version().then(() => '', (error: Error) => error.message);
  assert.match(await say({}), /ckptsidecar is not installed; get it and start it with "go install .*@latest && ckptsidecar serve"$/);
  const warnings: string[] = [];
  await say({ autostart: true, onWarning: (w: string) => warnings.push(w) });
  assert.match(warnings.join(), /there is no ckptsidecar on PATH/);
  copyFileSync(bin, join(empty, 'ckptsidecar'));
  chmodSync(join(empty, 'ckptsidecar'), 0o755);
  await new Promise((done) => setTimeout(done, 1100)); // it is looked for once a second
  assert.match(await say({}), /start one with "ckptsidecar serve", or let the client do it with autostart: true$/);
  environment({ PATH: path });
});

/** runs says whether there is a process of this number. */
function runs(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

test('with autostart the user\'s own daemon is started once, outlives the client, and is used', { skip: windows, timeout: 60_000 }, async () => {
  const home = folder();
  const tools = join(home, 'bin');
  mkdirSync(tools);
  // Its process number is written down, so that the test can end it.
  writeFileSync(join(tools, 'ckptsidecar'), `#!/bin/sh\necho $$ >> ${join(home, 'pids')}\nexec ${bin} "$@"\n`, { mode: 0o755 });
  environment({ PATH: `${tools}:${process.env['PATH']}`, CKPTSIDECAR_SOCKET: undefined, XDG_RUNTIME_DIR: home, XDG_STATE_HOME: join(home, 'state') });
  const started = () => readFileSync(join(home, 'pids'), 'utf8').trim().split('\n').map(Number);
  const warnings: string[] = [];
  const options = { autostart: true, onWarning: (w: string) => void warnings.push(w) };
  try {
    const saves = await Promise.all([1, 2, 3].map((n) => new Sidecar(options).agent('auto').save({ n })));
    assert.deepEqual(saves.map((s) => s.stored), ['daemon', 'daemon', 'daemon']);
    assert.ok(existsSync(join(home, 'state', 'ckptsidecar', 'ckpt.db')));
    assert.ok(existsSync(join(home, 'ckptsidecar.sock')));
    assert.equal((await new Sidecar({ deadline: 1000 }).agent('auto').list()).checkpoints.length, 3);
    assert.deepEqual(warnings, []);
  } finally {
    for (const pid of started()) {
      try {
        process.kill(pid, 'SIGTERM');
      } catch {
        // it found another daemon in its place
      }
    }
  }
  // It tells of its end after its socket is gone, in the file from which the next one's words are taken.
  await until('it is gone', () => !started().some(runs));
  writeFileSync(join(tools, 'ckptsidecar'), '#!/bin/sh\necho "no room on the moon" >&2\nexit 3\n', { mode: 0o755 });
  await new Sidecar({ ...options, deadline: 100, failOpen: false }).agent('auto').save(1).catch(() => undefined);
  assert.match(warnings.join(), /serve" was started, but it ended with exit code 3: no room on the moon/);
});
