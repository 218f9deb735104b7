import type { Typed } from './frame.js';

const mostBytes = 32 * 1024 * 1024; // of all values of a saver

/** A value that this process has, by the name that the daemon gave it. Nobody else has its bytes. */
class HeldValue {
  private readonly value: Typed;

  constructor(
    { type, data }: Typed,
    readonly tag: string,
  ) {
    this.value = { type, data: new Uint8Array(data) };
  }

  get size(): number {
    return this.value.data.length;
  }

  /** A copy, which may be changed: a serializer may hand out the very bytes. */
  copy(): Typed {
    return { type: this.value.type, data: Buffer.from(this.value.data) };
  }
}

/** The values of a checkpoint that this process has, by channel. */
export type Holding = ReadonlyMap<string, HeldValue>;

/** A value of a checkpoint, with a tag where the daemon gave one. */
export interface Seen {
  channel: string;
  tag: string | undefined;
  value: Typed;
}

/**
 * The values of the newest checkpoint of each thread and namespace, as this process has sent or read them. A value is only ever used where the
 * daemon says that its own has the same tag, so that nothing here can be out of date.
 */
export class HeldValues {
  private readonly holdings = new Map<string, Map<string, HeldValue>>(); // the last used one last
  private bytes = 0;

  /** What is held of a thread and namespace. It does not change any more. */
  of(thread: string, ns: string): Holding {
    return this.holdings.get(nameOf(thread, ns)) ?? new Map();
  }

  /** Holds the values of a checkpoint. Those of the channels in `kept` are held already. */
  put(thread: string, ns: string, values: Seen[], kept: string[]): void {
    const name = nameOf(thread, ns);
    const before = this.holdings.get(name);
    const next = new Map<string, HeldValue>();
    for (const channel of kept) {
      const held = before?.get(channel);
      if (held) next.set(channel, held);
    }
    for (const { channel, tag, value } of values) {
      if (tag !== undefined) next.set(channel, new HeldValue(value, tag));
    }
    this.drop(name);
    if (next.size === 0) return;
    this.holdings.set(name, next);
    this.bytes += sizeOf(next);
    for (const oldest of this.holdings.keys()) {
      if (this.bytes <= mostBytes) break;
      this.drop(oldest);
    }
  }

  /** Forgets all: the daemon is another one. */
  clear(): void {
    this.holdings.clear();
    this.bytes = 0;
  }

  private drop(name: string): void {
    const gone = this.holdings.get(name);
    if (!gone) return;
    this.bytes -= sizeOf(gone);
    this.holdings.delete(name);
  }
}

function nameOf(thread: string, ns: string): string {
  return JSON.stringify([thread, ns]);
}

function sizeOf(values: Map<string, HeldValue>): number {
  let sum = 0;
  for (const value of values.values()) sum += value.size;
  return sum;
}
