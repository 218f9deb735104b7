// What LangGraph's messages say of tool calls, told to the daemon as steps, so that drift detection sees them.

import { encode } from '../encode.js';
import { objectOf } from '../requests.js';

const mostCalls = 10_000; // that are remembered, of all threads
const mostWaiting = 1000; // steps of threads whose run is not known yet

/** A tool call as an answer of the model makes it. */
interface Call {
  name: string;
  args: unknown;
  /** the id of the model's answer */
  turn: string | undefined;
}

/** What is read of a message; it may be one of LangChain's, or a plain object of the same form. */
interface Message {
  id?: unknown;
  tool_calls?: unknown;
  tool_call_id?: unknown;
  name?: unknown;
  status?: unknown;
  content?: unknown;
  additional_kwargs?: { outcome?: unknown };
}

/** A step that is over, as a body of `POST …/steps`. */
export type StepBody = Buffer;

/**
 * The steps of a saver's threads. A message of the model names its calls, and a message of a tool answers one. The key of the step is the call's
 * id, and its turn the id of the model's message. A tool says that its answer was no by `additional_kwargs: { outcome: 'negative' }`.
 */
export class ToolSteps {
  private readonly calls = new Map<string, Call>();
  private readonly runs = new Map<string, string>();
  private readonly waiting = new Map<string, StepBody[]>();

  /** Reads what the model has called in the messages of a value. */
  learn(place: string, value: unknown): void {
    for (const message of messagesOf(value)) {
      if (!Array.isArray(message.tool_calls)) continue;
      for (const call of message.tool_calls as { id?: unknown; name?: unknown; args?: unknown }[]) {
        if (typeof call?.id !== 'string' || typeof call.name !== 'string') continue;
        put(this.calls, keyOf(place, call.id), { name: call.name, args: call.args, turn: text(message.id) });
      }
    }
  }

  /** Reads what tools have answered in the messages of a value, and keeps it until it is taken. */
  note(place: string, value: unknown): void {
    for (const message of messagesOf(value)) {
      const id = text(message.tool_call_id);
      if (id === undefined) continue;
      const call = this.calls.get(keyOf(place, id));
      const name = call?.name ?? text(message.name);
      if (name === undefined) continue;
      const waiting = this.waiting.get(place) ?? [];
      if (waiting.length < mostWaiting) waiting.push(bodyOf(id, name, call, message));
      put(this.waiting, place, waiting);
    }
  }

  /** Which run a thread and namespace are. */
  isRun(place: string, run: string): void {
    put(this.runs, place, run);
  }

  /** The steps that can be sent, and the run that they belong to. */
  take(place: string): { run: string; steps: StepBody[] } | undefined {
    const [run, steps] = [this.runs.get(place), this.waiting.get(place)];
    if (run === undefined || steps === undefined) return undefined;
    this.waiting.delete(place);
    return { run, steps };
  }
}

function bodyOf(key: string, name: string, call: Call | undefined, message: Message): StepBody {
  const failed = message.status === 'error';
  const content = message.content ?? null;
  const outcome = message.additional_kwargs?.outcome === 'negative' ? 'negative' : undefined;
  const error = failed ? (typeof content === 'string' ? content : JSON.stringify(content)).slice(0, 16_000) : undefined;
  const args = call?.args === undefined ? undefined : encode(call.args, 'drop', `the arguments of tool call ${key}`).bytes;
  const result = failed ? undefined : encode(content, 'drop', `the result of tool call ${key}`).bytes;
  return objectOf({ key, name, status: failed ? 'failed' : 'succeeded', turn: call?.turn, outcome, error }, { args, result });
}

/** The messages in a value, which may be one, or a list of them. */
function messagesOf(value: unknown): Message[] {
  const list = Array.isArray(value) ? value : [value];
  return list.filter((one): one is Message => typeof one === 'object' && one !== null);
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function keyOf(place: string, id: string): string {
  return JSON.stringify([place, id]);
}

/** Puts into a map of a bounded size. */
function put<V>(map: Map<string, V>, key: string, value: V): void {
  map.delete(key);
  map.set(key, value);
  if (map.size > mostCalls) map.delete(map.keys().next().value!);
}
