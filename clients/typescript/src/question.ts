// Questions to people: what is asked, what is answered, and the wait for it.

import { Connection } from './connection.js';
import { revive } from './decode.js';
import { type Duration, milliseconds, sleep } from './duration.js';
import { isSidecarError, SidecarError } from './errors.js';
import { passes, understood } from './problem.js';
import { get, queryOf } from './requests.js';
import type { Settings } from './settings.js';
import type { Prompt } from './wire.js';

export interface QuestionOptions {
  /** asked again under it, it is the same question; without one it is the same where the words are, until the run has saved something after the answer */
  key?: string;
  /** why it is asked, for the person */
  reason?: string;
  /** the only answers; without them any is allowed */
  choices?: string[];
  /** the JSON Schema of the data that comes with the answer */
  schema?: Record<string, unknown>;
  /** how long it may be answered */
  expires?: Duration;
  /** where there is no answer yet, suspend the run and throw Unanswered */
  suspend?: boolean;
  /** ends the wait; the question stays open */
  signal?: AbortSignal;
}

/** What a person answered: a choice, data, or both. */
export interface Answered<D = any> {
  choice: string | null;
  data: D;
  by: string | null;
  at: string | null;
  prompt: Prompt;
}

/** A question has no answer: the run is suspended until somebody answers (`prompt.status` is `open`), nobody did in time, or it was withdrawn. */
export class Unanswered extends SidecarError {
  constructor(readonly prompt: Prompt) {
    super('conflict', why(prompt));
  }
}

function why(prompt: Prompt): string {
  if (prompt.status === 'expired') return `nobody answered prompt ${prompt.id} until it expired at ${prompt.expires_at}`;
  if (prompt.status === 'withdrawn') return `prompt ${prompt.id} was withdrawn without an answer`;
  return `run ${prompt.run} of ${prompt.agent} is suspended until somebody answers: ckptsidecar prompts answer ${prompt.id}`;
}

export function answered<D>(prompt: Prompt): Answered<D> {
  if (prompt.status !== 'answered') throw new Unanswered(prompt);
  return { choice: prompt.choice, data: revive(prompt.data) as D, by: prompt.answered_by, at: prompt.answered_at, prompt };
}

/** How long a question may be answered, as the daemon reads it. */
export function expiry(expires: Duration | undefined): string | undefined {
  return expires === undefined ? undefined : `${Math.max(1, Math.round(milliseconds(expires, 'expires')))}ms`;
}

const part = 300_000; // how long one request waits; the next one follows at once
const longestPause = 2000;

/** Waits until a prompt is open no more, on a connection of its own, also over a restart of the daemon. */
export async function wait(settings: Settings, endpoint: string | undefined, id: string, signals: (AbortSignal | undefined)[]): Promise<Prompt> {
  const connection = new Connection(endpoint ?? settings.socket);
  const given = signals.filter((signal) => signal !== undefined);
  const stop = (): void => connection.close();
  for (const signal of given) signal.addEventListener('abort', stop, { once: true });
  const check = (): void => given.find((signal) => signal.aborted)?.throwIfAborted();
  const ask = get(`/v1/prompts/${encodeURIComponent(id)}`, queryOf({ wait: `${part}ms`, owner: settings.owner }));
  try {
    for (let pause = 20; ; ) {
      check();
      try {
        const prompt = understood<Prompt>(await connection.send(ask, part + 30_000), false);
        if (prompt.status !== 'open') return prompt;
        pause = 20;
      } catch (error) {
        check();
        if (!isSidecarError(error) || !passes(error, false)) throw error;
        await sleep(Math.max(pause, Math.min(error.retryAfter ?? 0, longestPause)));
        pause = Math.min(pause * 2, longestPause);
      }
    }
  } finally {
    for (const signal of given) signal.removeEventListener('abort', stop);
    connection.close();
  }
}
