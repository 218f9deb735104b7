import { Agent as HttpAgent, request, type IncomingHttpHeaders } from 'node:http';

import { candidates, socketVariable } from './endpoint.js';
import { invalid } from './errors.js';
import { nobody, Unreached } from './unreached.js';

/** A request that may be sent more than once. */
export interface Ask {
  method: 'GET' | 'PUT' | 'POST' | 'PATCH' | 'DELETE';
  /** escaped */
  path: string;
  /** encoded, without `?` */
  query?: string;
  headers?: Record<string, string>;
  body?: Buffer;
  /** whether it changes something */
  write?: boolean;
  /** sending it twice does it once */
  repeatable?: boolean;
  /** nobody waits for it, so it does not keep the process alive */
  background?: boolean;
}

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** From this size the daemon is asked first whether it takes the body: it may refuse, and hang up on who goes on sending. */
const askFirst = 4 << 20;
const askFirstPatience = 5000;

const none = Buffer.alloc(0);

/** A path that is too long would be cut, and another one be called. */
function checkLength(path: string): string {
  const most = process.platform === 'win32' ? 256 : process.platform === 'darwin' ? 103 : 107;
  if (Buffer.byteLength(path) <= most) return path;
  throw invalid(`the endpoint ${path} is too long: it needs ${Buffer.byteLength(path)} bytes and the system takes ${most}; name another with ${socketVariable}`);
}

/** The one connection to the daemon. It is made when it is needed, and made again when it broke. */
export class Connection {
  private readonly agent = new HttpAgent({ keepAlive: true, maxSockets: 1, timeout: 5 * 60_000 });
  private found: string | undefined;

  constructor(private readonly socket: string | undefined) {}

  /** Where the daemon answered. From then on it is looked for nowhere else: its data is there. */
  get endpoint(): string | undefined {
    return this.found;
  }

  /** Where it is looked for. */
  get paths(): string[] {
    return this.found ? [this.found] : candidates(this.socket);
  }

  /** Sends once. Throws Unreached where no whole answer came in time. */
  async send(ask: Ask, timeout: number): Promise<Answer> {
    if (this.found) return this.exchange(this.found, ask, timeout);
    const paths = this.paths.map(checkLength);
    let telling: Unreached | undefined;
    for (const path of paths) {
      try {
        const answer = await this.exchange(path, ask, timeout);
        this.found = path;
        return answer;
      } catch (error) {
        if (!(error instanceof Unreached) || error.sent) throw error;
        // One that is there and refuses says more than one that is missing.
        if (!telling && !error.missing) telling = error;
      }
    }
    throw telling ?? nobody(paths);
  }

  close(): void {
    this.agent.destroy();
  }

  private exchange(path: string, ask: Ask, timeout: number): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const body = ask.body ?? none;
      const first = body.length >= askFirst;
      const headers: Record<string, string | number> = { ...ask.headers };
      if (body.length > 0 || ask.method !== 'GET') headers['Content-Length'] = body.length;
      if (first) headers['Expect'] = '100-continue';
      const req = request({
        socketPath: path,
        agent: this.agent,
        host: 'ckptsidecar',
        method: ask.method,
        path: ask.query ? `${ask.path}?${ask.query}` : ask.path,
        headers,
      });
      let connected = false;
      let timedOut = false;
      let waiting: NodeJS.Timeout | undefined;
      const timer = setTimeout(() => {
        timedOut = true;
        req.destroy(new Error('no answer in time'));
      }, timeout);
      if (ask.background) timer.unref();
      const settle = (): void => {
        clearTimeout(timer);
        clearTimeout(waiting);
      };
      const fail = (cause: Error): void => {
        settle();
        reject(new Unreached(path, cause, { sent: connected, timedOut, stale: req.reusedSocket && !timedOut, write: ask.write === true }));
      };
      req.on('socket', (socket) => {
        if (ask.background) socket.unref();
        if (!socket.connecting) connected = true;
        else socket.once('connect', () => (connected = true));
      });
      req.on('error', fail);
      req.on('response', (res) => {
        const chunks: Buffer[] = [];
        res.on('data', (chunk: Buffer) => chunks.push(chunk));
        res.on('error', fail);
        res.on('end', () => {
          if (!res.complete) return fail(new Error('the answer is not whole'));
          settle();
          if (!req.writableEnded) req.destroy(); // it was refused before the body was sent
          resolve({ status: res.statusCode!, headers: res.headers, body: chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks) });
        });
      });
      if (!first) {
        req.end(body);
        return;
      }
      const go = (): void => {
        clearTimeout(waiting);
        if (!req.writableEnded && !req.destroyed) req.end(body);
      };
      waiting = setTimeout(go, askFirstPatience);
      req.on('continue', go);
      req.flushHeaders();
    });
  }
}
