import type { SidecarError } from './errors.js';

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
  /** by their names in lower case */
  headers: Record<string, string | undefined>;
  body: Buffer;
}

/** Until when a call may try, which may depend on why it fails. */
export type Until = (error?: SidecarError) => number;
