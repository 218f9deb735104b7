import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, renameSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import fsp from 'node:fs/promises';
import { createServer } from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { Sidecar, version } from 'ckptsidecar';
import { child, quantile, until, World } from './world.js';

/** A world whose daemon is not started yet. */
function absent(): World {
  return new World('monitor.interval=50ms');
}

const patient = { deadline: 50, startDeadline: 50 };

function fileOf(world: World, name: string): { header: Record<string, unknown> & { headers: Record<string, string> }; body: Buffer } {
  const content = readFileSync(join(world.spool, name));
  const end = content.indexOf(10);
  return { header: JSON.parse(content.subarray(0, end).toString()) as never, body: content.subarray(end + 1) };
}

test('a file of the spool has the form that all clients share', async () => {
  const world = absent();
  const agent = world.client(patient).agent('form');
  const saved = await agent.save({ a: 'ünï' }, { run: 'r:1', kind: 'recovery', labels: { k: 'v w' }, metadata: { m: 'ü' } });
  assert.equal(saved.stored, 'spool');
  const [name] = world.spooled() as [string];
  assert.match(name, new RegExp(`^[0-9a-f]{16}-${saved.id}\\.ckpt$`));
  const order = Number(BigInt('0x' + name.slice(0, 16)) / 1_000_000n);
  assert.ok(Math.abs(order - Date.now()) < 10_000);
  const { header, body } = fileOf(world, name);
  assert.equal(body.toString(), '{"a":"ünï"}');
  const { created_at, ...rest } = header;
  assert.match(created_at as string, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.deepEqual(rest, {
    version: 1,
    method: 'PUT',
    path: `/v1/agents/form/checkpoints/${saved.id}`,
    query: 'kind=recovery&run=r%3A1&label=k%3Dv%20w',
    headers: { 'Content-Type': 'application/json', 'Ckpt-Metadata': '{"m":"\\u00fc"}' },
    agent: 'form',
    run: 'r:1',
    endpoint: world.socket,
    size: body.length,
    sha256: createHash('sha256').update(body).digest('hex'),
    client: `typescript/${version}`,
  });
  assert.equal(statSync(world.spool).mode & 0o777, 0o700);
  assert.equal(statSync(join(world.spool, name)).mode & 0o777, 0o600);
  assert.deepEqual(readdirSync(world.spool), [name], 'nothing else is left');
  await world.start();
  await world.client().replay();
  const back = await world.client().agent('form').latest({ run: 'r:1' });
  assert.deepEqual([back?.id, back?.state, back?.labels, back?.metadata, back?.kind], [saved.id, { a: 'ünï' }, { k: 'v w' }, { m: 'ü' }, 'recovery']);
});

test('agents run on without a daemon, and all is there later, once and in order', { timeout: 60_000 }, async () => {
  const world = absent();
  const deadline = 300;
  const count = 200;
  const agents = ['a', 'b', 'c'].map((name) => child('child-agent.js', world.env, name, String(count), String(deadline)));
  const beyond: number[] = [];
  for (const agent of agents) {
    const { code } = await agent.ended;
    assert.equal(code, 0, agent.output());
    const said = JSON.parse(agent.output()) as { offline: boolean; beyond: number[] };
    assert.equal(said.offline, true);
    beyond.push(...said.beyond);
  }
  console.log(`a save without a daemon, three agents at once, beyond the deadline: p50 ${quantile(beyond, 0.5).toFixed(2)} ms, p99 ${quantile(beyond, 0.99).toFixed(2)} ms, of ${beyond.length}`);
  await world.start();
  process.env['CKPTSIDECAR_SOCKET'] = world.socket; // as the agents had it, who never found a daemon there
  after(() => delete process.env['CKPTSIDECAR_SOCKET']);
  const client = world.client();
  await Promise.all(['a', 'b', 'c'].map((name) => client.agent(name).setPolicy({ routine_keep: 0 })));
  const report = await client.replay();
  assert.deepEqual([report.left, report.rejected], [0, []]);
  for (const name of ['a', 'b', 'c']) {
    const states: unknown[] = [];
    const agent = client.agent(name);
    for await (const c of agent.all({ run: 'offline', kind: 'routine' })) states.unshift((await agent.checkpoint(c.id)).state);
    assert.deepEqual(states, Array.from({ length: count }, (_, n) => ({ n: n + 1 })));
    assert.equal((await agent.info('offline')).status, 'completed');
    const steps = JSON.parse(world.run('steps', name, '--run', 'offline', '--json')) as { steps: { key: string; status: string; attempt: number; result: unknown }[] };
    assert.deepEqual(steps.steps.map((s) => [s.key, s.status, s.attempt, s.result]), [['a step', 'succeeded', 1, { cost: 5 }]]);
    const operations = JSON.parse(world.run('operations', name, '--run', 'offline', '--json')) as { operations: { key: string; status: string; attempt: number }[] };
    assert.deepEqual(operations.operations.map((o) => [o.key, o.status, o.attempt]), [['a failing one', 'failed', 1], ['an operation', 'succeeded', 1]]);
    const events = world.run('events', 'list', name, '--run', 'offline', '--json').trim().split('\n').map((line) => JSON.parse(line) as { type: string; payload: unknown });
    assert.deepEqual(events.map((e) => [e.type, e.payload]), [['failed', { n: count }], ['an event', { n: 1 }]]);
  }
  assert.deepEqual(world.spooled(), []);
  assert.equal((await client.replay()).sent, 0);
});

test('a full spool is an error that says what to do, or is dropped and said so', async () => {
  const world = absent();
  const state = { text: 'x'.repeat(3000) };
  const raising = world.client({ ...patient, spool: { maxBytes: 8000 } }).agent('full');
  assert.equal((await raising.save(state)).stored, 'spool');
  assert.equal((await raising.save(state)).stored, 'spool');
  await assert.rejects(raising.save(state), (error: Error & { code: string; outcome: string }) => {
    assert.equal(error.code, 'spool');
    assert.equal(error.outcome, 'not_saved');
    assert.match(error.message, /is full: it holds \d+ bytes and may hold 8000; start the daemon.*spool\.maxBytes; it is needed because no daemon answers at/);
    return true;
  });
  const dropping = world.client({ ...patient, spool: { maxBytes: 8000, whenItFails: 'drop' } }).agent('full');
  const before = world.warnings.length;
  const lost = await dropping.save(state);
  assert.equal(lost.stored, 'nowhere');
  assert.match((lost as { reason: string }).reason, /is full/);
  assert.equal((await dropping.save(state)).stored, 'nowhere');
  assert.match(world.warnings.slice(before).join('\n'), /writes are lost from now on/);
  await world.start();
  await until('it is there again', async () => (await dropping.save(state)).stored === 'daemon');
  assert.match(world.warnings.join('\n'), /the daemon answers again; 0 requests were spooled; \d+ more were lost/);
});

test('a spool that cannot be written is an error that says why', async () => {
  const world = absent();
  writeFileSync(join(world.dir, 'file'), '');
  const under = world.client({ ...patient, spool: { folder: join(world.dir, 'file', 'spool') } }).agent('no');
  await assert.rejects(under.save(1), { code: 'spool', message: /cannot be written: .*(ENOTDIR|EEXIST)/ });
  const open = join(world.dir, 'open');
  mkdirSync(open);
  chmodSync(open, 0o777);
  const shared = world.client({ ...patient, spool: { folder: open } }).agent('no');
  await assert.rejects(shared.save(1), { code: 'spool', message: /others may write to the spool .*chmod go-w/ });
  const link = join(world.dir, 'link');
  chmodSync(open, 0o700);
  symlinkSync(open, link);
  const linked = world.client({ ...patient, spool: { folder: link } }).agent('no');
  await assert.rejects(linked.save(1), { code: 'spool', message: /is not a folder/ });
  assert.deepEqual(readdirSync(open), []);
  await assert.rejects(world.client({ ...patient, failOpen: false }).agent('no').save(1), { code: 'no_daemon' });
  assert.deepEqual(world.spooled(), []);
});

test('nothing is taken from a spool that others may write to', async () => {
  const world = absent();
  const writer = world.client(patient);
  writer.close(); // so that it does not empty the spool by itself
  await writer.agent('a').save({ planted: true });
  chmodSync(world.spool, 0o777);
  const refused = /others may write to the spool .*chmod go-w/;
  const run = await world.client(patient).agent('a').start({ signals: [] });
  assert.deepEqual([run.plan?.verdict, run.state], ['offline', undefined]);
  assert.match(run.plan!.reasons.join(' '), refused);
  await assert.rejects(run.save({ n: 1 }), { code: 'spool', message: refused });
  await world.start();
  const client = world.client();
  assert.equal((await client.agent('a').save({ n: 1 })).stored, 'daemon');
  assert.match(world.warnings.join(' '), refused);
  await assert.rejects(client.replay(), { code: 'spool', message: refused });
  assert.equal(world.spooled().length, 1);
  chmodSync(world.spool, 0o700);
  assert.equal((await client.replay()).sent, 1);
});

test('what waits goes before what is new, in one client and in the next', async () => {
  const world = absent();
  const client = world.client(patient);
  for (let n = 1; n <= 5; n++) await client.agent('order').save({ n });
  client.close(); // so that it does not empty the spool by itself
  await world.start();
  await world.client().agent('other').save('another run goes at once');
  const second = world.client().agent('order');
  const saved = await second.save({ n: 6 });
  assert.deepEqual([saved.stored, (saved as { seq?: number }).seq], ['daemon', 6]);
  const seqs: unknown[] = [];
  await second.setPolicy({ routine_keep: 0 });
  for await (const c of second.all()) seqs.push(c.seq);
  assert.deepEqual(seqs, [6, 5, 4]);
  assert.equal((await second.latest())?.state.n, 6);
});

test('a resume and a look see what waits', async () => {
  const world = absent();
  await world.client(patient).agent('seen').save({ n: 1 });
  await world.start();
  assert.deepEqual((await world.client().agent('seen').latest())?.state, { n: 1 });
  await world.stop();
  await world.client(patient).agent('seen').save({ n: 2 });
  await world.start();
  await world.client().agent('seen').run((run) => assert.deepEqual([run.plan?.verdict, run.state], ['resume', { n: 2 }]));
});

test('a client that has seen that nothing waits looks again before it reads or resumes', async () => {
  const world = await World.start();
  const first = world.client().agent('shared');
  await first.save({ n: 0 });
  const owner = await world.client().agent('shared').start({ signals: [], heartbeatEvery: 3_600_000 });
  for (const n of [1, 2]) {
    await world.stop();
    const other = world.client(patient);
    if (n === 1) assert.equal((await other.agent('shared').save({ n })).stored, 'spool');
    else assert.equal((await other.join(owner.share()).save({ n })).stored, 'spool');
    other.close(); // so that it does not empty the spool by itself
    await world.start();
    if (n === 1) assert.deepEqual((await first.latest())?.state, { n });
  }
  await first.run((run) => assert.deepEqual(run.state, { n: 2 }), { force: true });
  assert.deepEqual([world.spooled(), world.spooled('rejected')], [[], []]);
});

test('it empties by itself once the daemon is back, without another call', async () => {
  const world = absent();
  const agent = world.client(patient).agent('drains');
  for (let n = 0; n < 40; n++) await agent.save({ n });
  await world.start();
  await until('it is empty', () => world.spooled().length === 0, 30_000);
});

test('what other agents have spooled is sent by the next process of any agent', async () => {
  const world = absent();
  const gone = world.client(patient);
  for (let n = 0; n < 3; n++) await gone.agent(`gone${n}`).save({ n });
  gone.close(); // so that it does not empty the spool by itself
  await world.start();
  await world.client().agent('next').save(1);
  await until('it is empty', () => world.spooled().length === 0, 30_000);
});

test('what the daemon refuses for good is put aside with why, and the rest goes on', async () => {
  const world = await World.start();
  const client = world.client({ deadline: 4000 });
  const owner = await client.agent('taken').start({ signals: [] });
  await owner.save({ n: 1 });
  await world.stop();
  assert.equal((await owner.save({ n: 2 })).stored, 'spool');
  const file = world.spooled()[0]!;
  renameSync(join(world.spool, file), join(world.dir, file)); // so that somebody can take the run over
  await world.start();
  await world.client().agent('taken').start({ force: true, signals: [] });
  renameSync(join(world.dir, file), join(world.spool, file));
  await world.stop();
  await client.agent('fine').save({ n: 3 });
  client.close(); // so that it does not empty the spool by itself
  await world.start();
  const report = await world.client().replay();
  assert.deepEqual([report.sent, report.left, report.rejected.map((r) => [r.file, r.agent, r.run, r.code])], [1, 0, [[file, 'taken', 'main', 'fenced']]]);
  assert.deepEqual(world.spooled('rejected'), [file]);
  const why = JSON.parse(readFileSync(join(world.spool, 'rejected', file.replace('.ckpt', '.json')), 'utf8')) as Record<string, unknown>;
  assert.deepEqual([why['code'], why['status'], Object.keys(why).sort()], ['fenced', 409, ['at', 'code', 'detail', 'status']]);
  assert.match(world.warnings.join('\n'), /the daemon refused what agent taken, run main, had spooled at/);
  // For a moment after it was away the daemon is not asked, and a save is spooled unseen.
  await until('the owner is told', () =>
    owner.save({ n: 4 }).then(
      () => false,
      (error: { code?: string }) => error.code === 'fenced',
    ),
  );
});

test('what is spooled for a daemon that only the environment names is sent to that', async () => {
  const world = absent();
  process.env['CKPTSIDECAR_SOCKET'] = world.socket;
  const client = world.client({ ...patient, socket: '' });
  await client.agent('named').save({ n: 1 });
  client.close();
  assert.equal(fileOf(world, world.spooled()[0]!).header['endpoint'], world.socket);
  await world.start();
  assert.match(world.run('spool', 'replay'), /^1 sent, /);
  assert.deepEqual((await world.client().agent('named').latest())?.state, { n: 1 });
  delete process.env['CKPTSIDECAR_SOCKET'];
});

test('damaged files and those of no client are put aside, later versions and other daemons are left', async () => {
  const world = absent();
  const client = world.client(patient);
  client.close();
  const agent = client.agent('damage');
  for (let n = 0; n < 5; n++) await agent.save({ n });
  const names = world.spooled().sort();
  const change = (name: string, what: (text: string) => string): void => writeFileSync(join(world.spool, name), what(readFileSync(join(world.spool, name), 'utf8')));
  change(names[0]!, (text) => text.slice(0, -1));
  change(names[1]!, (text) => text.replace('"method":"PUT"', '"method":"DELETE"'));
  change(names[2]!, (text) => text.replace('"version":1', '"version":2'));
  change(names[3]!, (text) => text.replace(world.socket, '/elsewhere'));
  writeFileSync(join(world.spool, names[4]!), 'nonsense');
  const [link, left] = [`ffff${names[4]!.slice(4)}`, join(world.spool, '.1-2-3.tmp')];
  renameSync(join(world.spool, names[4]!), join(world.dir, 'x'));
  symlinkSync(join(world.dir, 'x'), join(world.spool, link));
  for (const name of [left, join(world.spool, '.1-2-4.tmp')]) writeFileSync(name, '');
  utimesSync(left, new Date(Date.now() - 3_700_000), new Date(Date.now() - 3_700_000));
  await agent.save({ n: 'fine' }, { run: 'other' });
  await world.start();
  const report = await world.client().replay();
  assert.deepEqual([report.sent, report.left, report.rejected], [1, 0, []]);
  assert.equal(existsSync(left), false, 'left over by a writer that died');
  assert.equal(existsSync(join(world.spool, '.1-2-4.tmp')), true);
  assert.deepEqual(world.spooled().sort(), [names[2], names[3]]);
  assert.deepEqual(world.spooled('rejected').sort(), [names[0], names[1], link]);
  await until('it saves again', async () => (await agent.save({ n: 9 })).stored === 'daemon');
  assert.deepEqual((await agent.latest())?.state, { n: 9 });
});

test('what no request can be made of is put aside with why, and the rest goes on', async () => {
  const world = absent();
  const client = world.client(patient);
  client.close();
  for (let n = 0; n < 2; n++) await client.agent('broken').save({ n });
  const [first] = world.spooled().sort() as [string];
  const file = join(world.spool, first);
  const text = readFileSync(file, 'utf8').replace('"application/json"', '"text/plain\\r\\nEvil: 1"');
  assert.match(text, /Evil/);
  writeFileSync(file, text);
  await world.start();
  const report = await world.client().replay();
  assert.deepEqual([report.sent, report.left, report.rejected.map((r) => [r.file, r.code])], [1, 0, [[first, 'invalid']]]);
  assert.deepEqual([world.spooled(), world.spooled('rejected')], [[], [first]]);
});

test('two replay at once and all is there once; a stale lock is broken', async () => {
  const world = absent();
  const agent = world.client(patient).agent('two');
  for (let n = 1; n <= 30; n++) await agent.save({ n });
  const lock = join(world.spool, 'replay.lock');
  writeFileSync(lock, JSON.stringify({ pid: 1, host: 'elsewhere', token: 'x' }));
  await world.start();
  const [one, two] = [world.client(), world.client()];
  await one.agent('two').setPolicy({ routine_keep: 0 });
  await assert.rejects(world.client({ deadline: 300 }).replay(), { code: 'busy' }, 'somebody of another machine has it');
  utimesSync(lock, new Date(Date.now() - 121_000), new Date(Date.now() - 121_000));
  rmSync(lock); // and then two who do not know of each other
  const results = await Promise.allSettled([one.replay(), two.replay()]);
  assert.ok(results.some((r) => r.status === 'fulfilled'));
  await until('all is sent', () => world.spooled().length === 0);
  const kept: number[] = [];
  for await (const c of one.agent('two').all()) kept.unshift(c.seq);
  assert.deepEqual(kept, Array.from({ length: 30 }, (_, n) => n + 1));
  await world.stop();
  await agent.save({ n: 31 });
  const namespace = process.platform === 'linux' ? ` ${readlinkSync('/proc/self/ns/pid')}` : '';
  if (namespace) {
    writeFileSync(lock, JSON.stringify({ pid: 2 ** 22 + 1, host: hostname(), token: 'container' }));
    await world.start();
    await assert.rejects(world.client({ deadline: 300 }).replay(), { code: 'busy' }, 'a container with the same host name has it');
    await world.stop();
  }
  writeFileSync(lock, JSON.stringify({ pid: 2 ** 22 + 1, host: hostname() + namespace, token: 'dead' }));
  await world.start();
  assert.equal((await world.client().replay()).sent, 1, 'the lock of a process that is gone counts no more');
  await world.stop();
  await agent.save({ n: 32 });
  writeFileSync(lock, JSON.stringify({ pid: 1, host: 'elsewhere', token: 'old' }));
  utimesSync(lock, new Date(Date.now() - 121_000), new Date(Date.now() - 121_000));
  await world.start();
  assert.equal((await world.client().replay()).sent, 1);
  assert.throws(() => statSync(lock), 'it is removed');
});

test('a spool that cannot be written holds nothing up while the daemon is there', async () => {
  const world = absent();
  const writer = world.client(patient);
  writer.close(); // so that it does not empty the spool by itself
  await writer.agent('stuck').save({ n: 0 });
  await writer.agent('stuck').save(Buffer.from('{no json'), { contentType: 'application/json' });
  await writer.agent('stuck').save({ n: 2 });
  const names = world.spooled();
  await world.start();
  await world.client().agent('stuck').setPolicy({ routine_keep: 0 });
  const failing = ['open', 'unlink', 'rename', 'mkdir'] as const;
  const real = { ...fsp };
  for (const name of failing) {
    const before = real[name] as (path: string, ...more: unknown[]) => Promise<unknown>;
    const fail = (path: string, ...more: unknown[]): Promise<unknown> =>
      path.startsWith(world.spool) && (name !== 'open' || more[0] === 'wx') ? Promise.reject(new Error('EROFS: read-only file system')) : before(path, ...more);
    Object.assign(fsp, { [name]: fail });
  }
  syncBuiltinESMExports();
  try {
    const client = world.client({ deadline: 60_000 });
    for (const n of [3, 4]) assert.equal((await client.agent('stuck').save({ n })).stored, 'daemon');
    assert.deepEqual(await client.replay(), { sent: 0, rejected: [], left: 0 }, 'what was answered is not sent again');
  } finally {
    Object.assign(fsp, real);
    syncBuiltinESMExports();
  }
  assert.deepEqual(world.spooled(), names);
  assert.match(world.warnings.join('\n'), /was answered, but can be neither removed nor put aside: EROFS/);
  const report = await world.client().replay();
  assert.deepEqual([report.sent, report.rejected.length, report.left], [2, 1, 0], 'another client sends it again, which does no harm');
  const agent = world.client().agent('stuck');
  const kept: unknown[] = [];
  for await (const c of agent.all()) kept.unshift((await agent.checkpoint(c.id)).state);
  assert.deepEqual(kept, [{ n: 0 }, { n: 2 }, { n: 3 }, { n: 4 }]);
});

test('a lock that is stale and cannot be removed holds nothing up', async () => {
  const world = absent();
  const writer = world.client(patient);
  writer.close(); // so that it does not empty the spool by itself
  await writer.agent('stale').save({ n: 1 });
  const lock = join(world.spool, 'replay.lock');
  mkdirSync(lock); // no file, so it cannot be removed as one
  await world.start();
  await assert.rejects(world.client({ deadline: 300 }).replay(), { code: 'busy' });
  utimesSync(lock, new Date(Date.now() - 121_000), new Date(Date.now() - 121_000));
  assert.equal((await world.client().agent('stale').save({ n: 2 })).stored, 'daemon');
  assert.deepEqual(world.spooled(), []);
});

test('replayers that are killed lose nothing and send nothing twice', { timeout: 60_000 }, async () => {
  const world = absent();
  const client = world.client(patient);
  const count = 150;
  for (let n = 1; n <= count; n++) await client.agent('killed').save({ n });
  client.close();
  await world.start();
  await world.client({ spool: { folder: join(world.dir, 'none') } }).agent('killed').setPolicy({ routine_keep: 0 });
  let kills = 0;
  while (world.spooled().length > 0) {
    const before = world.spooled().length;
    const replayer = child('child-replayer.js', world.env);
    while (world.spooled().length === before && replayer.exitCode === null) await new Promise((done) => setTimeout(done, 1));
    if (kills < 8) replayer.kill('SIGKILL');
    if ((await replayer.ended).signal === 'SIGKILL') kills++;
  }
  assert.ok(kills > 3, `only ${kills} were killed in time`);
  const kept: number[] = [];
  const agent = world.client().agent('killed');
  for await (const c of agent.all()) kept.unshift((await agent.checkpoint(c.id)).state.n as number);
  assert.deepEqual(kept, Array.from({ length: count }, (_, n) => n + 1));
  assert.deepEqual(world.spooled('rejected'), []);
});

test('a run that dies without a daemon goes on from the spool', async () => {
  const world = absent();
  const client = (): Sidecar => world.client(patient);
  const first = await client().agent('dies').start({ signals: [], initial: { n: 0 } });
  assert.deepEqual([first.plan?.verdict, first.plan?.offline, first.epoch], ['offline', true, undefined]);
  await first.step('before', () => 1);
  await first.operation('earlier', undefined, () => ({ paid: new Date(0) }), { offline: 'allow' });
  await assert.rejects(first.operation('fails', undefined, () => Promise.reject(new Error('no')), { offline: 'allow', notDone: () => true }));
  await first.save({ n: 1 });
  let done = 0;
  await first.step('paid', () => ++done);
  void first.step('hangs', () => new Promise(() => undefined), { args: { to: 'x' } });
  await until('it is spooled', () => world.spooled().length === 10);
  await first.stop; // its process dies here
  const second = await client().agent('dies').start({ signals: [], force: true });
  assert.deepEqual([second.plan?.verdict, second.state], ['offline', { n: 1 }]);
  assert.deepEqual(second.plan?.completed_steps, [{ key: 'paid', name: 'paid', result: 1 }]);
  assert.deepEqual(second.plan?.interrupted_steps.map((s) => [s.key, s.args]), [['hangs', { to: 'x' }]]);
  assert.equal(await second.step('paid', () => ++done), 1);
  assert.equal(done, 1);
  assert.equal(await second.step('before', () => assert.fail('it was done')), 1);
  assert.deepEqual(await second.operation('earlier', undefined, () => assert.fail('it was done')), { paid: new Date(0) });
  assert.equal(await second.operation('fails', undefined, () => 'later', { offline: 'allow' }), 'later');
  void second.operation('risky', { n: 2 }, () => new Promise(() => undefined), { offline: 'allow' });
  await until('it is spooled', () => world.spooled().length === 15);
  await assert.rejects(client().agent('dies').start({ force: true }), { code: 'uncertain_operation', message: /\nckptsidecar operation resolve dies risky it_did\|it_did_not\|repeat$/ });
  await world.start();
  await assert.rejects(client().agent('dies').start({ force: true }), { code: 'uncertain_operation' });
  world.run('operation', 'resolve', 'dies', 'risky', 'it_did', '--reason', 'looked');
  const third = await client().agent('dies').start({ force: true, signals: [] });
  assert.deepEqual(third.state, { n: 2 });
  await third.end();
});

test('a run goes on from no damaged file of the spool', async () => {
  const world = absent();
  const writer = world.client(patient);
  writer.close(); // so that it does not empty the spool by itself
  const agent = writer.agent('damaged');
  for (let n = 0; n < 3; n++) await agent.save({ n });
  const names = world.spooled().sort();
  const change = (name: string, from: string, to: string): void => writeFileSync(join(world.spool, name), readFileSync(join(world.spool, name), 'utf8').replace(from, to));
  change(names[1]!, '{"n":1}', '{"n":9}');
  change(names[2]!, '{"n":2}', '{"n":2');
  const run = await world.client(patient).agent('damaged').start({ signals: [] });
  assert.deepEqual([run.plan?.verdict, run.state], ['offline', { n: 0 }]);
  assert.deepEqual(run.plan?.skipped.map((s) => s.id), names.slice(1));
  assert.match(run.plan!.skipped[0]!.reason, /cannot be read: its body has not the hash/);
  assert.match(run.plan!.reasons.join(' '), /2 files cannot be read/);
});

test('a run that began without the daemon is registered when that is back', async () => {
  const world = absent();
  const client = world.client({ deadline: 1000, startDeadline: 50 });
  const run = await client.agent('late').start({ heartbeatEvery: 20, goal: 'late' });
  await run.save({ n: 1 });
  await run.step('s', () => 1);
  await world.start();
  await until('it has its epoch', () => run.epoch !== undefined);
  const info = await client.agent('late').info();
  assert.deepEqual([info.pid, info.goal, info.epoch], [process.pid, 'late', run.epoch]);
  await run.save({ n: 2 });
  await run.end();
  assert.equal((await client.agent('late').info()).status, 'completed');
});

test('a run that a person must decide about is claimed after the answer', async () => {
  const world = await World.start();
  const first = await world.client().agent('asked').start({ heartbeatTimeout: 100, heartbeatEvery: '1h', signals: [] });
  void first.operation('pay', undefined, () => new Promise(() => undefined));
  const operation = (): string | undefined => (JSON.parse(world.run('operations', 'asked', '--json')) as { operations: { status: string }[] }).operations[0]?.status;
  await until('nobody knows what became of it', () => operation() === 'uncertain');
  await world.stop();
  const run = await world.client(patient).agent('asked').start({ force: true, heartbeatEvery: 20, signals: [] });
  await world.start();
  await until('it was told to wait', () => /a person must decide before run main of agent asked is claimed/.test(world.warnings.join(' ')));
  assert.equal(run.epoch, undefined);
  world.run('operation', 'resolve', 'asked', 'pay', 'it_did', '--reason', 'looked');
  await until('it has its epoch', () => run.epoch !== undefined);
  await run.end();
});

test('a run that began without the daemon ends when another host has it', async () => {
  const world = absent();
  const run = await world.client(patient).agent('elsewhere').start({ heartbeatEvery: 20, signals: [] });
  // A fleet needs PostgreSQL and a second host: what their daemon answers is written here.
  const problem = { type: 'about:blank', title: 'It conflicts', status: 409, detail: 'run main of elsewhere is on host beta', code: 'conflict', outcome: 'not_saved' };
  let resumes = 0;
  const server = createServer((request, response) => {
    if (request.url?.endsWith('/resume')) resumes++;
    request.resume().on('end', () => response.writeHead(409, { 'Content-Type': 'application/problem+json' }).end(JSON.stringify(problem)));
  });
  after(() => void server.close());
  await new Promise<void>((ready) => server.listen(world.socket, ready));
  await until('the run is over', () => run.signal.aborted);
  assert.match(String(run.signal.reason), /is on host beta/);
  await assert.rejects(run.save({ n: 1 }), { code: 'conflict' });
  await assert.rejects(run.step('s', () => assert.fail('it was done')), { code: 'conflict' });
  assert.equal(resumes, 1);
});

test('with needDaemon a run does not begin without one', async () => {
  const world = absent();
  await assert.rejects(world.client(patient).agent('needs').start({ needDaemon: true }), { code: 'no_daemon' });
  await assert.rejects(world.client({ ...patient, failOpen: false }).agent('needs').start(), { code: 'no_daemon' });
});

test('a fork does not begin without a daemon, but goes on from what it has spooled', async () => {
  const world = absent();
  await world.start();
  const base = await world.client().agent('forks').save({ n: 41 }, { run: 'trunk' });
  await world.stop();
  const agent = world.client(patient).agent('forks');
  const options = { run: 'branch', forkFrom: base.id };
  await assert.rejects(agent.start(options), { code: 'no_daemon' });
  await agent.save({ n: 42 }, { run: 'branch' });
  const run = await agent.start(options);
  assert.deepEqual([run.plan?.offline, run.state], [true, { n: 42 }]);
  await run.end('suspended');
});

test('a daemon that is full or only serves reads is spooled to as well', async () => {
  const world = await World.start('limits.owner_bytes=20KiB');
  const agent = world.client({ deadline: 300 }).agent('quota');
  const { randomBytes } = await import('node:crypto');
  let spooled = 0;
  for (let n = 0; n < 6; n++) if ((await agent.save(randomBytes(6000).toString('hex'))).stored === 'spool') spooled++;
  assert.ok(spooled > 0);
  assert.equal(world.spooled().length, spooled);
});
