// Types that JSON does not have are written as an object with the member
// "$ckpt", in the same way as the Python client does it.

export const tag = '$ckpt';

/** Stands where a value was dropped when the state was saved. Saved again, it stays. */
export class Dropped {
  constructor(
    /** of what type the value was, such as `function` or `Promise` */
    readonly type: string,
    readonly reason: string,
  ) {}
}

/** A value of a type that another language has and this one does not. Saved again, it stays as it is. */
export class Tagged {
  readonly [member: string]: unknown;

  constructor(members: object) {
    for (const [name, member] of Object.entries(members)) setMember(this, name, member);
  }
}

/** Sets a member, also one that is called __proto__. */
export function setMember(object: object, name: string, value: unknown): void {
  if (name !== '__proto__') (object as Record<string, unknown>)[name] = value;
  else Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
}

type Numbers = new (buffer: ArrayBuffer) => ArrayBufferView;

/** The kinds of bytes that come back as what they were, besides Uint8Array. */
export const kindsOfBytes: Record<string, (bytes: Buffer) => unknown> = {
  Buffer: (bytes) => bytes,
  ArrayBuffer: copied,
  DataView: (bytes) => new DataView(copied(bytes)),
  Int8Array: of(Int8Array),
  Uint8ClampedArray: of(Uint8ClampedArray),
  Int16Array: of(Int16Array),
  Uint16Array: of(Uint16Array),
  Int32Array: of(Int32Array),
  Uint32Array: of(Uint32Array),
  Float32Array: of(Float32Array),
  Float64Array: of(Float64Array),
  BigInt64Array: of(BigInt64Array),
  BigUint64Array: of(BigUint64Array),
};

function copied(bytes: Buffer): ArrayBuffer {
  return new Uint8Array(bytes).buffer as ArrayBuffer;
}

function of(kind: Numbers): (bytes: Buffer) => unknown {
  return (bytes) => new kind(copied(bytes));
}
