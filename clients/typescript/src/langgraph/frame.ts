// Framed bodies: a line of JSON that says which values come and how long each is, and then their bytes.

import { SidecarError } from '../errors.js';

export const contentType = 'application/vnd.ckptsidecar.graph';

/** A value as the daemon keeps it: bytes, and how to read them. */
export interface Typed {
  type: string;
  data: Uint8Array;
}

/** Puts a body together. */
export function frame(head: unknown, values: Uint8Array[]): Buffer {
  return Buffer.concat([Buffer.from(JSON.stringify(head) + '\n', 'utf8'), ...values]);
}

/** Cuts a body apart, value by value in the order of its head. */
export class Framed<Head> {
  readonly head: Head;
  private at: number;

  constructor(private readonly body: Buffer) {
    const end = body.indexOf(10);
    if (end < 0) throw misunderstood();
    this.at = end + 1;
    try {
      this.head = JSON.parse(body.toString('utf8', 0, end)) as Head;
    } catch {
      throw misunderstood();
    }
  }

  take(of: { type: string; length: number }): Typed {
    const from = this.at;
    this.at += of.length;
    if (this.at > this.body.length) throw misunderstood();
    return { type: of.type, data: this.body.subarray(from, this.at) };
  }
}

function misunderstood(): SidecarError {
  return new SidecarError('internal', "the daemon's answer cannot be read: install the same version of client and daemon");
}
