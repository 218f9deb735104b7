// How things of this side are written for the daemon.

import type { Ask } from './ask.js';
import { invalid } from './errors.js';
import type { SpoolAsk } from './spool.js';
import { uuid7 } from './uuid.js';

const agentName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const runName = /^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,254}$/;

export function checkAgent(name: string): string {
  if (typeof name === 'string' && agentName.test(name)) return name;
  throw invalid(`the agent name ${shown(name)} is not valid: it must be 1 to 128 letters, digits, ".", "_" and "-", and begins with a letter or a digit`);
}

export function checkRun(name: string): string {
  if (typeof name === 'string' && runName.test(name)) return name;
  throw invalid(`the run name ${shown(name)} is not valid: it must be 1 to 255 letters, digits and ". _ : @ + -", and begins with a letter or a digit`);
}

/** The name of a run, or of an earlier life of it: `main~1` is the one before. */
export function checkLife(name: string): string {
  checkRun(typeof name === 'string' ? baseOf(name) : name);
  return name;
}

/** The name of all lives of a run. */
export function baseOf(run: string): string {
  return run.replace(/~[1-9]\d{0,8}$/, '');
}

/** A key of a step or an operation, or the type of an event. */
export function checkKey(what: string, key: string): string {
  const bytes = typeof key === 'string' ? Buffer.byteLength(key) : 0;
  if (bytes === 0 || bytes > 512 || /[\ud800-\udfff]/.test(key.replace(/[\ud800-\udbff][\udc00-\udfff]/g, ''))) {
    throw invalid(`the ${what} ${shown(key)} is not valid: it must be text of 1 to 512 bytes`);
  }
  return key;
}

function shown(text: unknown): string {
  return JSON.stringify(typeof text === 'string' ? text.slice(0, 64) : text) ?? String(text);
}

export type QueryValue = string | number | boolean | null | undefined;

/** A query; what is missing or empty is not in it. */
export function queryOf(values: Record<string, QueryValue>, labels: Record<string, string> = {}): string {
  const parts: string[] = [];
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== '') parts.push(`${name}=${encode(String(value))}`);
  }
  for (const [key, value] of Object.entries(labels)) parts.push(`label=${encode(`${key}=${value}`)}`);
  return parts.join('&');
}

/** One part of a path. Dots alone would mean another place. */
export function segment(part: string): string {
  if (part === '.') return '%2E';
  return part === '..' ? '%2E%2E' : encode(part);
}

function encode(text: string): string {
  try {
    return encodeURIComponent(text);
  } catch {
    throw invalid(`${shown(text)} is not valid text: it has half a character`);
  }
}

/** JSON as a header takes it: in printable ASCII. */
export function headerJSON(value: unknown): string {
  return JSON.stringify(value).replace(/[\u007f-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

/** A JSON object with members that are JSON already. */
export function objectOf(members: Record<string, unknown>, raw: Record<string, Buffer | undefined> = {}): Buffer {
  const parts: Buffer[] = [Buffer.from(JSON.stringify(members).slice(0, -1), 'utf8')];
  let first = parts[0]!.length === 1;
  for (const [name, value] of Object.entries(raw)) {
    if (!value) continue;
    parts.push(Buffer.from(`${first ? '' : ','}"${name}":`), value);
    first = false;
  }
  parts.push(Buffer.from('}'));
  return Buffer.concat(parts);
}

/** A POST that is done once, however often it is sent. */
export function post(path: string, body: Buffer, run: { agent: string; run: string }, query?: string): SpoolAsk {
  const id = uuid7();
  const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': id };
  return { method: 'POST', path, ...(query ? { query } : {}), headers, body, id, agent: run.agent, run: run.run, write: true, repeatable: true };
}

/** A read. */
export function get(path: string, query?: string): Ask {
  return { method: 'GET', path, ...(query ? { query } : {}), repeatable: true };
}
