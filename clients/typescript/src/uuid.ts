import { randomFillSync } from 'node:crypto';

const bytes = Buffer.alloc(16);
const random = Buffer.alloc(4096);
let used = random.length;
let last = 0;
let sequence = 0;

/**
 * A UUID of version 7. Those of one thread grow: within a millisecond the 12
 * bits after the time count on, and when they are used up the time is lent.
 */
export function uuid7(now = Date.now()): string {
  if (used > random.length - 10) {
    randomFillSync(random);
    used = 0;
  }
  random.copy(bytes, 6, used, used + 10);
  used += 10;
  if (now > last) {
    last = now;
    sequence = bytes.readUInt16BE(6) & 0x7ff; // the upper half is left to count
  } else if (++sequence > 0xfff) {
    last++;
    sequence = 0;
  }
  bytes.writeUIntBE(last, 0, 6);
  bytes.writeUInt16BE(0x7000 | sequence, 6);
  bytes[8] = 0x80 | (bytes[8]! & 0x3f);
  const hex = bytes.toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

const form = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

export function isUuid7(text: string): boolean {
  return form.test(text);
}
