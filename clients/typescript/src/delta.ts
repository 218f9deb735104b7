// What two states share, found at the speed of native code: memory is compared
// by Buffer.compare and searched by Buffer.indexOf.

/** Matches shorter than this lose their way in repetitive text. */
const block = 64;
/** How far from the expected place is looked first, and at which distances the blocks lie that are looked for. */
const near = 4096;
const nearBlocks = [0, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048];
/** Distances of the blocks that are looked for in all of the other state. */
const farBlocks = [0, 64, 256, 1024, 4096, 16384, 65536];
const mostOperations = 4096;
const leastBudget = 256 << 10; // bytes that may be searched, however small the states are

/**
 * The form in which a change travels: a JSON array of operations on one line
 * (`[offset, length]` copies from the base, a number takes as many literal
 * bytes), and the literal bytes. Undefined where it is more than half as long as the state.
 */
export function diff(base: Buffer, state: Buffer): Buffer | undefined {
  const change = new Change(base, state);
  change.find();
  return change.encode();
}

class Change {
  private readonly operations: string[] = [];
  private readonly literals: Buffer[] = [];
  private literalBytes = 0;
  private copyFrom = -1; // the copy that is not written yet, so that one beside it joins it
  private copyLength = 0;
  private budget: number; // bytes that may still be searched

  constructor(
    private readonly base: Buffer,
    private readonly state: Buffer,
  ) {
    this.budget = leastBudget + 4 * (base.length + state.length);
  }

  find(): void {
    const { base, state } = this;
    const start = common(base, 0, state, 0, Math.min(base.length, state.length));
    const end = commonEnd(base, state, Math.min(base.length, state.length) - start);
    this.copy(0, start);
    this.between(start, start, state.length - end);
    this.copy(base.length - end, end);
  }

  /** Goes through the state from q to its end, with the base at b. */
  private between(b: number, q: number, end: number): void {
    const { base, state } = this;
    while (end - q >= block && this.operations.length < mostOperations) {
      const met = this.meet(b, q, end);
      if (!met) break;
      let [from, to] = met;
      while (to > q && from > 0 && base[from - 1] === state[to - 1]) {
        from--;
        to--;
      }
      const length = common(base, from, state, to, Math.min(base.length - from, end - to));
      this.literal(q, to);
      this.copy(from, length);
      b = from + length;
      q = to + length;
    }
    this.literal(q, end);
  }

  /** Where the two meet again: first near the expected place, then anywhere. */
  private meet(b: number, q: number, end: number): [number, number] | undefined {
    for (const d of nearBlocks) {
      const met = this.meetAt(b, q, d, end, near);
      if (met) return met;
    }
    if ((end - q) * 256 < this.state.length) return undefined; // cheaper to send than to look for
    for (const d of farBlocks) {
      const met = this.meetAt(b, q, d, end, Infinity);
      if (met) return met;
    }
    return undefined;
  }

  /** Looks for the block at distance d of each in the other. */
  private meetAt(b: number, q: number, d: number, end: number, reach: number): [number, number] | undefined {
    const { base, state } = this;
    const [inBase, inState] = [b + d + block <= base.length, q + d + block <= end];
    if (inBase && inState && same(base, b + d, state, q + d, block)) return [b + d, q + d]; // as far as before: in repetitive text others are found as well
    if (inBase) {
      const at = this.search(state, base, b + d, q, Math.min(end, q + d + reach));
      if (at >= 0) return [b + d, at];
    }
    if (inState) {
      const from = reach === Infinity ? 0 : b;
      const at = this.search(base, state, q + d, from, Math.min(base.length, b + d + reach));
      if (at >= 0) return [at, q + d];
    }
    return undefined;
  }

  private search(where: Buffer, what: Buffer, at: number, from: number, to: number): number {
    if (to - from < block || this.budget <= 0) return -1;
    const found = where.subarray(from, to).indexOf(what.subarray(at, at + block));
    this.budget -= found < 0 ? to - from : found + block;
    return found < 0 ? -1 : from + found;
  }

  private literal(from: number, to: number): void {
    if (to <= from) return;
    this.flush();
    this.operations.push(String(to - from));
    this.literals.push(this.state.subarray(from, to));
    this.literalBytes += to - from;
  }

  private copy(from: number, length: number): void {
    if (length <= 0) return;
    if (this.copyFrom >= 0 && this.copyFrom + this.copyLength === from) {
      this.copyLength += length;
      return;
    }
    this.flush();
    this.copyFrom = from;
    this.copyLength = length;
  }

  private flush(): void {
    if (this.copyFrom < 0) return;
    this.operations.push(`[${this.copyFrom},${this.copyLength}]`);
    this.copyFrom = -1;
  }

  encode(): Buffer | undefined {
    this.flush();
    const line = Buffer.from(`[${this.operations.join(',')}]\n`, 'latin1');
    const size = line.length + this.literalBytes;
    if (size > this.state.length / 2) return undefined;
    return Buffer.concat([line, ...this.literals], size);
  }
}

/** How many bytes, at most `most`, are the same from `i` in a and `j` in b on. */
function common(a: Buffer, i: number, b: Buffer, j: number, most: number): number {
  let length = 0;
  for (let step = 256; length < most; step = Math.min(step * 4, 1 << 20)) {
    const n = Math.min(step, most - length);
    if (!same(a, i + length, b, j + length, n)) return length + parting(a, i + length, b, j + length, n);
    length += n;
  }
  return most;
}

/** Where two pieces of n bytes, which are not the same, part. */
function parting(a: Buffer, i: number, b: Buffer, j: number, n: number): number {
  let length = 0;
  while (n > 32) {
    const half = n >> 1;
    if (same(a, i + length, b, j + length, half)) {
      length += half;
      n -= half;
    } else {
      n = half;
    }
  }
  while (n-- > 0 && a[i + length] === b[j + length]) length++;
  return length;
}

/** How many bytes at the ends are the same. */
function commonEnd(a: Buffer, b: Buffer, most: number): number {
  let length = 0;
  for (let step = 256; length < most; step = Math.min(step * 4, 1 << 20)) {
    let n = Math.min(step, most - length);
    if (same(a, a.length - length - n, b, b.length - length - n, n)) {
      length += n;
      continue;
    }
    while (n > 32) {
      const half = n >> 1;
      if (same(a, a.length - length - half, b, b.length - length - half, half)) {
        length += half;
        n -= half;
      } else {
        n = half;
      }
    }
    while (n-- > 0 && a[a.length - length - 1] === b[b.length - length - 1]) length++;
    return length;
  }
  return most;
}

function same(a: Buffer, i: number, b: Buffer, j: number, n: number): boolean {
  return a.compare(b, j, j + n, i, i + n) === 0;
}
