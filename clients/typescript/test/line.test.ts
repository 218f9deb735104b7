// The client's own HTTP, against servers that speak it oddly or not at all.
import assert from 'node:assert/strict';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { after, test } from 'node:test';

import type { Answer, Ask } from '../dist/esm/ask.js';
import { Connection } from '../dist/esm/connection.js';
import { isSidecarError } from '../dist/esm/errors.js';
import { Unreached } from '../dist/esm/unreached.js';
import { folder, sleep, until } from './world.js';

const pipes = process.platform === 'win32';
let servers = 0;

/** One request as it came in. */
interface Request {
  head: string;
  body: Buffer;
  socket: Socket;
  /** which connection it came over, the first being 1 */
  connection: number;
}

/** A server that hands each request to a test, which writes the answer. */
class Raw {
  readonly path = pipes ? `\\\\.\\pipe\\ckpt-line-${process.pid}-${++servers}` : join(folder(), 's');
  readonly requests: Request[] = [];
  readonly sockets: Socket[] = [];
  readonly connection: Connection;
  private readonly server: Server;

  private constructor(
    private readonly answer: (request: Request) => void,
    private readonly onHead: (head: string, socket: Socket) => boolean,
  ) {
    this.connection = new Connection(this.path);
    this.server = createServer((socket) => this.serve(socket));
  }

  /** `onHead` may answer before the body is read, and then answers true. */
  static async listen(answer: (request: Request) => void, onHead: (head: string, socket: Socket) => boolean = () => false): Promise<Raw> {
    const raw = new Raw(answer, onHead);
    await new Promise<void>((ready) => raw.server.listen(raw.path, ready));
    after(() => raw.close());
    return raw;
  }

  close(): void {
    this.connection.close();
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
  }

  ask(path = '/x', body?: Buffer, timeout = 20_000): Promise<Answer> {
    return this.connection.send(body ? { method: 'PUT', path, body, write: true } : { method: 'GET', path }, timeout);
  }

  private serve(socket: Socket): void {
    const connection = this.sockets.push(socket);
    let held = Buffer.alloc(0);
    let seen = false;
    socket.on('error', () => undefined);
    socket.on('data', (part: Buffer) => {
      held = Buffer.concat([held, part]);
      for (;;) {
        const end = held.indexOf('\r\n\r\n');
        if (end < 0) return;
        const head = held.toString('latin1', 0, end);
        const first = !seen;
        seen = true;
        if (first && this.onHead(head, socket)) return;
        const size = Number(/Content-Length: (\d+)/.exec(head)?.[1] ?? 0);
        if (held.length < end + 4 + size) return;
        const request = { head, body: held.subarray(end + 4, end + 4 + size), socket, connection };
        held = held.subarray(end + 4 + size);
        seen = false;
        this.requests.push(request);
        this.answer(request);
      }
    });
  }
}

/** A server that says the same to everybody. */
const saying = (text: string, hangUp = false): Promise<Raw> => Raw.listen(({ socket }) => (hangUp ? socket.end(text, 'latin1') : socket.write(text, 'latin1')));

const ok = (body: string, ...headers: string[]): string => ['HTTP/1.1 200 OK', `Content-Length: ${Buffer.byteLength(body)}`, ...headers, '', body].join('\r\n');

async function unreached(asked: Promise<Answer>): Promise<Unreached> {
  try {
    const answer = await asked;
    throw new Error(`it was answered with ${answer.status}`);
  } catch (error) {
    assert.ok(error instanceof Unreached, String(error));
    return error;
  }
}

async function inPieces(socket: Socket, text: string, size: number): Promise<void> {
  for (let at = 0; at < text.length; at += size) {
    socket.write(text.slice(at, at + size), 'latin1');
    await new Promise((done) => setImmediate(done));
  }
}

test('answers are read whole, at whatever byte they are cut', async () => {
  const answers = [
    ok('hello', 'Retry-After: 7', 'Ckpt-Odd:   spaces   ', 'Twice: a', 'twice: b', '__proto__: p'),
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;ext="a;b"\r\n wo\r\n0003\r\nrld\r\n0\r\nTrailer: x\r\n\r\n',
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 204\r\n\r\n',
    'HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\n\r\n',
  ];
  const raw = await Raw.listen(({ head, socket }) => {
    const [, answer, size] = /^GET \/(\d+)\/(\d+) /.exec(head)!.map(Number);
    void inPieces(socket, answers[answer!]!, size!);
  });
  for (const size of [1, 2, 3, 7, 1000]) {
    const got: Answer[] = [];
    for (const n of answers.keys()) got.push(await raw.ask(`/${n}/${size}`));
    assert.deepEqual(got.map(({ status, body }) => [status, body.toString()]), [[200, 'hello'], [200, 'hello world'], [404, ''], [204, ''], [200, '\r\n']]);
    const { headers } = got[0]!;
    assert.deepEqual({ ...headers }, { 'content-length': '5', 'retry-after': '7', 'ckpt-odd': 'spaces', twice: 'a, b', ['__proto__']: 'p' });
    assert.equal(headers['constructor'], undefined);
  }
  assert.equal(raw.sockets.length, 1, 'all over one connection');
});

test('large answers are read whole', async () => {
  const large = Buffer.from(Array.from({ length: 1_000_003 }, (_, n) => n % 251));
  const chunks = [1, 65_535, 65_536, 300_000, 500_000].reduce<{ at: number; text: Buffer[] }>(
    ({ at, text }, size) => ({ at: at + size, text: [...text, Buffer.from(`${size.toString(16)}\r\n`), large.subarray(at, at + size), Buffer.from('\r\n')] }),
    { at: 0, text: [] },
  );
  const raw = await Raw.listen(({ head, socket }) => {
    if (head.startsWith('GET /chunked')) return socket.write(Buffer.concat([Buffer.from('HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n'), ...chunks.text, Buffer.from('0\r\n\r\n')]));
    socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${large.length}\r\n\r\n`);
    return socket.write(large);
  });
  for (let n = 0; n < 3; n++) {
    const [whole, chunked] = await Promise.all([raw.ask('/whole'), raw.ask('/chunked')]);
    assert.ok(whole.body.equals(large));
    assert.ok(chunked.body.equals(large.subarray(0, chunks.at)));
  }
  assert.equal(raw.sockets.length, 1);
});

test('a body without a length goes on until the connection ends', async () => {
  const raw = await saying('HTTP/1.1 200 OK\r\n\r\nall of it', true);
  assert.equal((await raw.ask()).body.toString(), 'all of it');
  assert.equal((await raw.ask()).body.toString(), 'all of it');
  assert.equal(raw.sockets.length, 2);
});

test('what is no HTTP is an error, and the connection is closed', async () => {
  const bad = [
    'SSH-2.0-OpenSSH_9.2\r\n\r\n',
    'HTTP/2 200 OK\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200OK\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 101 Switching Protocols\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 0x10\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx',
    'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx',
    'HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\nx',
    'HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nx',
    'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n',
    `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${'0'.repeat(5000)}`,
    'HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\r\n: no name\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nName : x\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nX: a\nY: b\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n',
    'HTTP/1.1 200 OK\nContent-Length: 0\n\n'.padEnd(70_000),
    `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(1 << 20)}`,
  ];
  for (const text of bad) {
    const raw = await saying(text);
    const error = await unreached(raw.ask('/x', Buffer.from('body')));
    const shown = JSON.stringify(text.slice(0, 80));
    assert.match(error.message, /the answer is not HTTP: /, shown);
    assert.deepEqual([error.code, error.outcome, error.sent, error.stale, error.timedOut], ['busy', 'unknown', true, false, false], shown);
    await until(`the connection is closed after ${shown}`, () => raw.sockets[0]!.destroyed || raw.sockets[0]!.readableEnded);
    raw.close();
  }
});

test('a long head is read, and an endless one is not', async () => {
  const raw = await Raw.listen(({ head, socket }) => {
    const size = Number(/\/(\d+) /.exec(head)![1]);
    socket.write(ok('x', `Long: ${'y'.repeat(size)}`));
  });
  assert.equal((await raw.ask('/60000')).headers['long']!.length, 60_000);
  assert.match((await unreached(raw.ask('/70000'))).message, /its head does not end/);
  assert.equal((await raw.ask('/60000')).body.toString(), 'x');
});

test('an answer that is cut short is an error', async () => {
  for (const text of ['', 'HTTP/1.1 2', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n', 'HTTP/1.1 100 Continue\r\n\r\n']) {
    const raw = await saying(text, true);
    const error = await unreached(raw.ask('/x', Buffer.from('body')));
    assert.deepEqual([error.code, error.outcome, error.sent, error.stale, error.timedOut], ['busy', 'unknown', true, false, false], text);
    assert.match(error.message, /broke before the answer came, so it is not known whether this was done: /);
    raw.close();
  }
});

test('requests are written as they should be', async () => {
  const raw = await Raw.listen(({ socket }) => socket.write(ok('')));
  for (const size of [0, 1, 16 << 10, (16 << 10) + 1, 3 << 20]) {
    const body = Buffer.alloc(size, 'b');
    await raw.connection.send({ method: 'POST', path: '/v1/x', query: 'a=b%20c', headers: { 'Content-Type': 'text/plain', Latin: 'caf\u00e9\t!' }, body }, 20_000);
    const { head, body: came } = raw.requests.pop()!;
    assert.equal(head, `POST /v1/x?a=b%20c HTTP/1.1\r\nHost: ckptsidecar\r\nContent-Type: text/plain\r\nLatin: caf\u00e9\t!\r\nContent-Length: ${size}`);
    assert.ok(came.equals(body));
  }
  await raw.ask('/read');
  assert.equal(raw.requests.pop()!.head, 'GET /read HTTP/1.1\r\nHost: ckptsidecar');
  assert.equal(raw.sockets.length, 1);
});

test('nothing can be smuggled into a request', async () => {
  const raw = await Raw.listen(({ socket }) => socket.write(ok('')));
  const asks: Partial<Ask>[] = [
    { path: '/x HTTP/1.1\r\nEvil: 1' },
    { path: '/x y' },
    { path: '/\u0100' },
    { path: 'x' },
    { path: '/x', query: 'a=\nb' },
    { path: '/x', headers: { Name: 'a\r\nEvil: 1' } },
    { path: '/x', headers: { Name: 'a\nb' } },
    { path: '/x', headers: { Name: 'a\0' } },
    { path: '/x', headers: { Name: '\u010a' } },
    { path: '/x', headers: { 'Na\r\nme': 'a' } },
    { path: '/x', headers: { '': 'a' } },
    { path: '/x', headers: { 'content-length': '3' } },
    { path: '/x', headers: { 'Transfer-Encoding': 'chunked' } },
    { path: '/x', method: 'GET /evil HTTP/1.1\r\n\r\nGET' as 'GET' },
  ];
  for (const ask of asks) {
    await assert.rejects(raw.connection.send({ method: 'GET', path: '/x', ...ask }, 20_000), (error) => isSidecarError(error, 'invalid') && error.outcome === 'not_saved', JSON.stringify(ask));
  }
  assert.equal((await raw.ask()).status, 200);
  assert.equal(raw.requests.length, 1);
});

test('requests that are asked at once go one after the other, in their order', async () => {
  let open = 0;
  const raw = await Raw.listen(({ head, socket }) => {
    assert.equal(++open, 1, 'only one is on its way');
    setTimeout(() => {
      open--;
      socket.write(ok(/GET (\S+)/.exec(head)![1]!));
    }, 5);
  });
  await raw.ask('/found');
  const paths = Array.from({ length: 20 }, (_, n) => `/${n}`);
  const order: string[] = [];
  await Promise.all(paths.map(async (path) => order.push((await raw.ask(path)).body.toString())));
  assert.deepEqual(order, paths);
  assert.deepEqual(raw.requests.map(({ head }) => /GET (\S+)/.exec(head)![1]), ['/found', ...paths]);
  assert.equal(raw.sockets.length, 1);
});

test('a connection that is closed while idle is replaced', async () => {
  const raw = await Raw.listen(({ socket, connection }) => socket.write(ok(String(connection))));
  assert.equal((await raw.ask()).body.toString(), '1');
  raw.sockets[0]!.end();
  await until('the client has closed it too', () => raw.sockets[0]!.destroyed);
  assert.equal((await raw.ask()).body.toString(), '2');
  raw.sockets[1]!.destroy();
  await sleep(50);
  assert.equal((await raw.ask()).body.toString(), '3');
});

test('a connection that ends with the next request on it was stale', async () => {
  const raw = await Raw.listen(({ socket, head }) => (head.startsWith('GET /end') ? socket.destroy() : socket.write(ok(''))));
  await raw.ask();
  const error = await unreached(raw.ask('/end'));
  assert.deepEqual([error.sent, error.stale], [true, true]);
  const fresh = await unreached(raw.ask('/end'));
  assert.deepEqual([fresh.sent, fresh.stale], [true, false], 'nothing had gone over this one');
  assert.equal((await raw.ask()).status, 200);
});

test('who is told to close, or told what nobody asked, closes', async () => {
  const answers = [ok('a', 'Connection: close'), 'HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na', `${ok('a')}HTTP/1.1 200 OK\r\n`, ok('a')];
  const raw = await Raw.listen(({ socket, connection }) => socket.write(answers[connection - 1]!));
  for (const n of answers.keys()) {
    assert.equal((await raw.ask()).body.toString(), 'a');
    assert.equal(raw.sockets.length, n + 1);
  }
  raw.sockets[3]!.write('HTTP/1.1 408 Request Timeout\r\n\r\n');
  await until('the client has closed it', () => raw.sockets[3]!.readableEnded || raw.sockets[3]!.destroyed);
});

test('who does not answer is waited for so long and no longer', async () => {
  const raw = await Raw.listen(({ socket, head }) => void (head.includes('/silent') || socket.write(ok('said'))));
  await raw.ask();
  const [silent, behind, patient] = await Promise.all([unreached(raw.ask('/silent', Buffer.from('x'), 150)), unreached(raw.ask('/behind', undefined, 100)), raw.ask('/patient')]);
  assert.deepEqual([silent.timedOut, silent.sent, silent.stale, silent.outcome], [true, true, false, 'unknown']);
  assert.deepEqual([behind.timedOut, behind.sent, behind.outcome], [true, false, 'not_saved']);
  assert.equal(patient.body.toString(), 'said');
  assert.equal(raw.sockets.length, 2, 'what is late must not be taken for the next answer');
  assert.deepEqual(raw.requests.map(({ head }) => /^\S+ (\S+)/.exec(head)![1]), ['/x', '/silent', '/patient']);
});

const large = Buffer.alloc(5 << 20, 'l');

test('a large body is sent when the daemon takes it', async () => {
  let waited: number | undefined;
  const raw = await Raw.listen(
    ({ socket }) => socket.write(ok('taken')),
    (head, socket) => {
      assert.match(head, /\r\nExpect: 100-continue/);
      setTimeout(() => {
        waited = socket.bytesRead - head.length - 4;
        socket.write('HTTP/1.1 100 Continue\r\n\r\n');
      }, 50);
      return false;
    },
  );
  for (let n = 1; n <= 2; n++) {
    assert.equal((await raw.ask('/x', large)).body.toString(), 'taken');
    assert.ok(raw.requests[n - 1]!.body.equals(large));
    if (n === 1) assert.equal(waited, 0, 'nothing of it was sent before');
  }
  assert.equal(raw.sockets.length, 1);
});

test('a large body that is refused is not sent', async () => {
  const refusal = 'HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno';
  for (const hangUp of [false, true]) {
    const raw = await Raw.listen(
      ({ socket }) => socket.write(ok('')),
      (head, socket) => head.startsWith('PUT') && (hangUp ? socket.end(refusal) : socket.write(refusal), true),
    );
    const answer = await raw.ask('/x', large);
    assert.deepEqual([answer.status, answer.body.toString()], [413, 'no']);
    await until('the connection is closed', () => raw.sockets[0]!.destroyed || raw.sockets[0]!.readableEnded);
    assert.ok(raw.sockets[0]!.bytesRead < 1000);
    assert.equal((await raw.ask()).status, 200);
    assert.equal(raw.sockets.length, 2);
  }
});

test('an answer that comes while a body is sent is the answer', async () => {
  const body = large.subarray(0, 3 << 20); // not asked about first
  const raw = await Raw.listen(
    ({ socket }) => socket.write(ok('')),
    (head, socket) => {
      if (!head.startsWith('PUT')) return false;
      socket.pause();
      socket.end('HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nfull');
      return true;
    },
  );
  const answer = await raw.ask('/x', body);
  assert.deepEqual([answer.status, answer.body.toString()], [429, 'full']);
  assert.equal((await raw.ask()).status, 200);
  assert.equal(raw.sockets.length, 2);
});

test('who closes it fails what is on its way, and may go on', async () => {
  const raw = await Raw.listen(({ socket, head }) => void (head.includes('/silent') || socket.write(ok(''))));
  await raw.ask();
  const failed = unreached(raw.ask('/silent'));
  await until('it is there', () => raw.requests.length === 2);
  raw.connection.close();
  assert.match((await failed).message, /the client was closed/);
  assert.equal((await raw.ask()).status, 200);
});

test('nobody there is told as such', { skip: pipes }, async () => {
  const path = join(folder(), 's');
  const missing = await unreached(new Connection(path).send({ method: 'GET', path: '/x' }, 20_000));
  assert.deepEqual([missing.code, missing.sent, missing.missing, missing.nobody], ['no_daemon', false, true, true]);
});
