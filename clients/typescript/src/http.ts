// HTTP/1.1 as this side of one connection speaks it: the head of a request, and answers as they come in, piece by piece.

import type { Answer, Ask } from './ask.js';
import { invalid } from './errors.js';

/** Bytes of the status line and headers of an answer; all that is not the body is read through a buffer of this size. */
const mostHead = 64 << 10;
const mostLine = 1 << 10; // before a chunk
const mostBody = 2 ** 32; // what every Node can hold in one piece

const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const framing = /^(content-length|transfer-encoding|connection|expect|host|upgrade|te|trailer)$/i;
const blank = Buffer.from('\r\n\r\n');
const lineEnd = Buffer.from('\r\n');
const none = Buffer.alloc(0);

/** Writes the head of a request with a body of so many bytes. Nothing in it can end a line early. */
export function headOf(ask: Ask, length: number, askFirst: boolean): string {
  const target = ask.query ? `${ask.path}?${ask.query}` : ask.path;
  if (!/^[A-Z]+$/.test(ask.method) || !/^\/[!-~]*$/.test(target)) throw invalid(`the request ${JSON.stringify(`${ask.method} ${target}`)} is not valid: it contains characters that must be escaped`);
  let head = `${ask.method} ${target} HTTP/1.1\r\nHost: ckptsidecar\r\n`;
  for (const name in ask.headers) {
    const value = ask.headers[name]!;
    if (!token.test(name) || framing.test(name)) throw invalid(`the header ${JSON.stringify(name)} cannot be sent`);
    if (/[^\t -~\x80-\xff]/.test(value)) throw invalid(`the header ${name} would hold a character that no header may hold`);
    head += `${name}: ${value}\r\n`;
  }
  if (length > 0 || ask.method !== 'GET') head += `Content-Length: ${length}\r\n`;
  return head + (askFirst ? 'Expect: 100-continue\r\n\r\n' : '\r\n');
}

/** Where in an answer the next byte is. */
type Part = 'head' | 'body' | 'chunk line' | 'chunk' | 'chunk end' | 'trailers' | 'until the end';

/**
 * Reads one answer after the other. Bytes are put where `room` says, and
 * `came` is told how many; then `next` gives the answers that are whole. What
 * is no HTTP throws, after which there is nothing more to be read. A body
 * whose length is known is put at once where it stays.
 */
export class Reader {
  private readonly buffer = Buffer.allocUnsafeSlow(mostHead);
  private from = 0; // what is before it has been read
  private filled = 0;
  private part: Part = 'head';
  private status = 0;
  private headers: Answer['headers'] = {};
  private body = none;
  private got = 0; // of the body
  private pieces: Buffer[] = [];
  private left = 0; // of the chunk
  private last = false;

  /** Where the next bytes are to be put. */
  room(): Buffer {
    if (this.part === 'body') return this.body.subarray(this.got);
    if (this.from === this.filled) this.from = this.filled = 0;
    if (this.filled === 0) return this.buffer;
    if (this.filled === this.buffer.length) {
      this.buffer.copyWithin(0, this.from, this.filled);
      this.filled -= this.from;
      this.from = 0;
    }
    return this.buffer.subarray(this.filled);
  }

  came(n: number): void {
    if (this.part === 'body') this.got += n;
    else this.filled += n;
  }

  /** The next whole answer, which may be an interim one; undefined where more must come. */
  next(): Answer | undefined {
    for (;;) {
      const part = this.part;
      const answer = this.step();
      if (answer || this.part === part) return answer;
    }
  }

  /** No more will come: the answer that is whole with this. Throws where there is none. */
  end(): Answer {
    if (this.part === 'until the end') return this.whole(Buffer.concat(this.pieces));
    throw hungUp(this.part === 'head' && this.from === this.filled ? 'the daemon closed the connection' : 'the answer is not whole');
  }

  /** Whether another answer can come after the last one. */
  get reusable(): boolean {
    return !this.last && this.part === 'head' && this.from === this.filled;
  }

  private step(): Answer | undefined {
    switch (this.part) {
      case 'head':
        return this.head();
      case 'body':
        return this.got === this.body.length ? this.whole(this.body) : undefined;
      case 'chunk line':
        return this.chunkLine();
      case 'chunk':
        return this.chunk();
      case 'chunk end':
        return this.chunkEnd();
      case 'trailers':
        return this.trailers();
      case 'until the end':
        this.take(Infinity);
    }
    return undefined;
  }

  private head(): Answer | undefined {
    const end = this.find(blank);
    if (end < 0) {
      if (this.filled - this.from >= mostHead) throw malformed('its head does not end');
      return undefined;
    }
    const lines = this.buffer.toString('latin1', this.from, end).split('\r\n');
    this.from = end + blank.length;
    const status = /^HTTP\/1\.([01]) ([1-5]\d\d)(?: [\t -~\x80-\xff]*)?$/.exec(lines[0]!);
    if (!status) throw malformed('it does not begin as one');
    this.status = Number(status[2]);
    this.headers = headersOf(lines);
    if (this.status < 200) return this.interim();
    this.last = status[1] === '0' || /(^|,)\s*close\s*(,|$)/i.test(this.headers['connection'] ?? '');
    return this.beginBody();
  }

  private interim(): Answer {
    if (this.status === 101) throw malformed('it switches to another protocol');
    return { status: this.status, headers: this.headers, body: none };
  }

  private beginBody(): Answer | undefined {
    const { 'content-length': length, 'transfer-encoding': encoding } = this.headers;
    if (this.status === 204 || this.status === 304) return this.whole(none);
    if (encoding !== undefined) {
      if (encoding.toLowerCase() !== 'chunked' || length !== undefined) throw malformed('its end is unclear');
      this.part = 'chunk line';
    } else if (length !== undefined) {
      this.allocate(length);
    } else {
      this.part = 'until the end';
      this.last = true;
    }
    return undefined;
  }

  /** Makes room for a body, and puts there what of it has come with the head. */
  private allocate(length: string): void {
    const size = /^\d{1,15}$/.test(length) ? Number(length) : Infinity;
    if (size > mostBody) throw malformed(`its Content-Length is ${length}`);
    this.body = size < 4096 ? Buffer.allocUnsafe(size) : Buffer.allocUnsafeSlow(size);
    this.got = Math.min(size, this.filled - this.from);
    this.buffer.copy(this.body, 0, this.from, this.from + this.got);
    this.from += this.got;
    this.part = 'body';
  }

  private chunkLine(): undefined {
    const line = this.line();
    if (line === undefined) return;
    const size = /^([0-9A-Fa-f]{1,12})[\t ]*(?:;|$)/.exec(line);
    if (!size) throw malformed('a chunk of it has no length');
    this.left = parseInt(size[1]!, 16);
    this.part = this.left > 0 ? 'chunk' : 'trailers';
  }

  private chunk(): undefined {
    this.left -= this.take(this.left);
    if (this.left === 0) this.part = 'chunk end';
  }

  private chunkEnd(): undefined {
    const line = this.line();
    if (line === undefined) return;
    if (line !== '') throw malformed('a chunk of it is longer than stated');
    this.part = 'chunk line';
  }

  private trailers(): Answer | undefined {
    for (let line = this.line(); line !== undefined; line = this.line()) if (line === '') return this.whole(Buffer.concat(this.pieces));
    return undefined;
  }

  private whole(body: Buffer): Answer {
    const answer = { status: this.status, headers: this.headers, body };
    this.part = 'head';
    this.body = none;
    this.pieces = [];
    return answer;
  }

  /** Where something is in what has come, negative where it is not. */
  private find(what: Buffer): number {
    const at = this.buffer.subarray(this.from, this.filled).indexOf(what);
    return at < 0 ? at : this.from + at;
  }

  private line(): string | undefined {
    const end = this.find(lineEnd);
    if ((end < 0 ? this.filled : end) - this.from > mostLine) throw malformed('a line of it does not end');
    if (end < 0) return undefined;
    const line = this.buffer.toString('latin1', this.from, end);
    this.from = end + lineEnd.length;
    return line;
  }

  /** Takes up to so many bytes of what has come as a piece of the body, and says how many. */
  private take(most: number): number {
    const size = Math.min(this.filled - this.from, most);
    if (size > 0) this.pieces.push(Buffer.from(this.buffer.subarray(this.from, this.from + size)));
    this.from += size;
    return size;
  }
}

/** The headers, with names in lower case. */
function headersOf(lines: string[]): Answer['headers'] {
  const headers = Object.create(null) as Record<string, string>;
  for (let i = 1; i < lines.length; i++) {
    const line = lines[i]!;
    const colon = line.indexOf(':');
    const name = line.slice(0, Math.max(colon, 0)).toLowerCase();
    const value = line.slice(colon + 1).trim();
    if (!token.test(name) || /[^\t -~\x80-\xff]/.test(value)) throw malformed('one of its headers is invalid');
    const before = headers[name];
    headers[name] = before === undefined ? value : `${before}, ${value}`;
  }
  return headers;
}

function malformed(why: string): Error {
  return new Error(`the answer is not HTTP: ${why}`);
}

export function hungUp(message: string): Error {
  return Object.assign(new Error(message), { code: 'ECONNRESET' });
}
