/** From this size a change is sent rather than the whole. */
export const deltaLeast = 8 << 10;
/** Bytes of states that a client keeps; no single one may have more than half. */
const most = 64 << 20;

/** A state that the daemon has said it has, byte for byte. */
export interface Held {
  id: string;
  sha256: string;
  state: Buffer;
}

/** The last acknowledged large state of each run, the last used kept longest. */
export class BaseCache {
  private readonly states = new Map<string, Held>();
  private bytes = 0;

  /** Whether a state of this size is kept at all. */
  static takes(size: number): boolean {
    return size >= deltaLeast && size <= most / 2;
  }

  get(run: string): Held | undefined {
    return this.states.get(run);
  }

  put(run: string, held: Held): void {
    this.drop(run);
    this.states.set(run, held);
    this.bytes += held.state.length;
    for (const [oldest] of this.states) {
      if (this.bytes <= most) break;
      this.drop(oldest);
    }
  }

  drop(run: string): void {
    const held = this.states.get(run);
    if (!held) return;
    this.states.delete(run);
    this.bytes -= held.state.length;
  }
}
