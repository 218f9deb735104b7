import { connect, type Socket } from 'node:net';

import type { Answer, Ask } from './ask.js';
import { headOf, hungUp, Reader } from './http.js';
import { look, lookAgain } from './trust.js';
import { Unreached } from './unreached.js';

/** From this size the daemon is asked first whether it takes the body: it may refuse, and hang up on who goes on sending. */
const askFirst = 4 << 20;
const askFirstPatience = 5000;
/** Up to this size a body is copied behind its head, and goes with it in one piece. */
const joined = 16 << 10;
/** The daemon closes what is idle for twice as long. */
const mostIdle = 5 * 60_000;
const longestTimer = 2 ** 31 - 1;

const none = Buffer.alloc(0);

/** One request, from when it is asked until it is answered. */
interface Exchange {
  readonly path: string;
  readonly ask: Ask;
  readonly head: string;
  readonly body: Buffer;
  /** when nobody waits for it any more */
  readonly until: number;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: Unreached) => void;
  /** its connection is there, so the daemon may have got it */
  connected: boolean;
  /** its connection has served others before */
  reused: boolean;
  /** runs while it is not known whether the daemon takes the body, which is not sent yet */
  patience: NodeJS.Timeout | undefined;
}

/** A connection that is there, or is being made. */
interface Wire {
  readonly path: string;
  readonly socket: Socket;
  readonly reader: Reader;
  connected: boolean;
  used: boolean;
}

/**
 * Requests go one after the other over one connection, which is made when the
 * first one needs it and made again when it broke. node:http can do the same,
 * and takes a tenth of a millisecond more for each.
 */
export class Transport {
  private wire: Wire | undefined;
  private current: Exchange | undefined;
  private readonly queue: Exchange[] = [];
  private awaited = 0; // of both, those for which somebody waits
  private idleSince = 0;
  private timer: NodeJS.Timeout | undefined; // one for all; it does not keep the process alive, the socket does
  private due = 0;

  /** `origin` says what named the endpoint, for errors. */
  constructor(private readonly origin: () => string = () => '') {}

  /** Sends once. Throws Unreached where no whole answer came in time. */
  ask(path: string, ask: Ask, timeout: number): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const body = ask.body ?? none;
      const head = headOf(ask, body.length, body.length >= askFirst);
      const until = performance.now() + timeout;
      this.queue.push({ path, ask, head, body, until, resolve, reject, connected: false, reused: false, patience: undefined });
      if (!ask.background) this.awaited++;
      this.wakeAt(until);
      if (this.current) this.holdProcess();
      else this.begin();
    });
  }

  /** Closes the connection. What is on its way over it fails; what is asked later makes a new one. */
  close(): void {
    this.broken(hungUp('the client was closed'));
    if (this.current) return;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  /** Sends the next one that waits. */
  private begin(): void {
    const next = this.queue.shift();
    if (!next) return this.rest();
    this.current = next;
    const old = this.wire;
    if (old && (old.path !== next.path || !old.socket.writable)) this.drop();
    try {
      this.wire ??= this.open(next.path);
    } catch (error) {
      return this.broken(error as Error);
    }
    const wire = this.wire;
    next.connected = wire.connected;
    next.reused = wire.used;
    wire.used = true;
    this.holdProcess();
    this.write(wire.socket, next);
  }

  private rest(): void {
    this.holdProcess();
    if (!this.wire) return;
    this.idleSince = performance.now();
    this.wakeAt(this.idleSince + mostIdle);
  }

  private open(path: string): Wire {
    const seen = look(path);
    const reader = new Reader();
    const onread = { buffer: () => reader.room(), callback: (n: number) => this.came(wire, n) };
    const socket = connect({ path, onread });
    const wire: Wire = { path, socket, reader, connected: false, used: false };
    socket.on('connect', () => {
      // This comes before the listener that sends what was written so far.
      try {
        lookAgain(path, seen);
      } catch (error) {
        socket.destroy(error as Error);
        return;
      }
      wire.connected = true;
      if (this.wire === wire && this.current) this.current.connected = true;
    });
    socket.on('end', () => this.ended(wire));
    socket.on('error', (cause) => this.wire === wire && this.broken(cause));
    socket.on('close', () => this.wire === wire && this.broken(hungUp('the connection was closed')));
    return wire;
  }

  private write(socket: Socket, exchange: Exchange): void {
    const { head, body } = exchange;
    if (body.length === 0) {
      socket.write(head, 'latin1');
    } else if (body.length <= joined) {
      const whole = Buffer.allocUnsafe(head.length + body.length);
      whole.write(head, 'latin1');
      whole.set(body, head.length);
      socket.write(whole);
    } else if (body.length < askFirst) {
      socket.cork();
      socket.write(head, 'latin1');
      socket.write(body);
      socket.uncork();
    } else {
      socket.write(head, 'latin1');
      exchange.patience = setTimeout(() => this.sendBody(), askFirstPatience).unref();
    }
  }

  /** Sends the body that waited for the daemon's word. */
  private sendBody(): void {
    const exchange = this.current;
    if (!exchange?.patience) return;
    clearTimeout(exchange.patience);
    exchange.patience = undefined;
    this.wire!.socket.write(exchange.body);
  }

  /** Bytes have come. */
  private came(wire: Wire, n: number): boolean {
    if (this.wire !== wire) return true;
    const exchange = this.current;
    if (!exchange) this.drop(); // it says what nobody has asked
    try {
      wire.reader.came(n);
      while (exchange) {
        const answer = wire.reader.next();
        if (!answer || this.answered(wire, exchange, answer)) break;
      }
    } catch (error) {
      this.broken(error as Error);
    }
    return true;
  }

  /** No more bytes will come. */
  private ended(wire: Wire): void {
    if (this.wire !== wire) return;
    if (!this.current) return this.drop();
    try {
      this.answered(wire, this.current, wire.reader.end());
    } catch (error) {
      this.broken(error as Error);
    }
  }

  /** Whether it is the answer, and no interim one. */
  private answered(wire: Wire, exchange: Exchange, answer: Answer): boolean {
    if (answer.status < 200) {
      if (answer.status === 100) this.sendBody();
      return false;
    }
    // A body that it refused, and the rest of one that it refused while it came, will not be sent.
    if (exchange.patience || wire.socket.writableLength > 0 || !wire.reader.reusable) this.drop();
    this.settled(exchange);
    exchange.resolve(answer);
    this.current = undefined;
    this.begin();
    return true;
  }

  /** The connection cannot be used any more, and what is on its way over it fails. */
  private broken(cause: Error, timedOut = false): void {
    this.drop();
    const exchange = this.current;
    if (!exchange) return;
    this.current = undefined;
    this.fail(exchange, cause, timedOut);
    this.begin();
  }

  private fail(exchange: Exchange, cause: Error, timedOut: boolean): void {
    this.settled(exchange);
    const { path, connected, reused, ask } = exchange;
    exchange.reject(new Unreached(path + this.origin(), cause, { sent: connected, timedOut, stale: reused && !timedOut, write: ask.write === true }));
  }

  private settled(exchange: Exchange): void {
    clearTimeout(exchange.patience);
    if (!exchange.ask.background) this.awaited--;
  }

  private drop(): void {
    const wire = this.wire;
    this.wire = undefined;
    wire?.socket.destroy();
  }

  /** The process stays alive while somebody waits for an answer. */
  private holdProcess(): void {
    if (this.awaited > 0) this.wire?.socket.ref();
    else this.wire?.socket.unref();
  }

  private wakeAt(when: number): void {
    if (this.timer && this.due <= when) return;
    clearTimeout(this.timer);
    this.due = when;
    this.timer = setTimeout(() => this.wake(), Math.min(Math.max(when - performance.now(), 1), longestTimer)).unref();
  }

  /** Gives up what nobody waits for any more. */
  private wake(): void {
    this.timer = undefined;
    const now = performance.now();
    const late = new Error('no answer in time');
    for (const exchange of this.queue.filter(({ until }) => until <= now)) {
      this.queue.splice(this.queue.indexOf(exchange), 1);
      this.fail(exchange, late, true);
    }
    if (this.current && this.current.until <= now) this.broken(late, true);
    if (!this.current && this.idleSince + mostIdle <= now) this.drop();
    const times = [this.current, ...this.queue].flatMap((exchange) => (exchange ? [exchange.until] : []));
    if (!this.current && this.wire) times.push(this.idleSince + mostIdle);
    if (times.length > 0) this.wakeAt(Math.min(...times));
  }
}
