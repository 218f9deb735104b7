import type { Delivery } from './delivery.js';
import { isJSON, type Stored, withState } from './checkpoint.js';
import { revive } from './decode.js';
import { messageOf, type SidecarError } from './errors.js';
import { type Plan, programRest } from './plan.js';
import { faultOf } from './replay.js';
import type { SpoolHeader } from './spool.js';
import type { Checkpoint, Json, Kind, Labels, OperationInfo, Program } from './wire.js';

/** By plan: the results of the steps and operations that the spool says were done. A state that was saved later does not end that. */
const done = new WeakMap<Plan, Map<string, unknown>>();

/** What was done before, by `step KEY` and `operation KEY`, where a plan was made from the spool. */
export function doneBefore(plan: Plan): Iterable<[string, unknown]> {
  return done.get(plan) ?? [];
}

const between = '-_./:#@~ ';
const uuid = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** The name that the daemon gives to a step without one: its key without a counter, an id or a date at the end. */
export function stepName(key: string): string {
  for (let name = key; name; ) {
    let begin = Math.max(...[...between].map((c) => name.lastIndexOf(c))) + 1;
    const found = uuid.exec(name);
    if (found) begin = found.index;
    if (!isCounter(name.slice(begin))) return name.replace(/[0-9]+$/, '') || name;
    name = name.slice(0, begin).replace(/[-_./:#@~ ]+$/, '');
  }
  return 'step';
}

/** A number, an id, or a part of a date. */
function isCounter(word: string): boolean {
  const digits = word.replace(/[^0-9]/g, '').length;
  return word === '' || (digits > 0 && (/^[0-9TZ]*$/.test(word) || Buffer.byteLength(word) >= 8));
}

/** What the spool tells of a run. */
class Told {
  checkpoint: Stored | null = null;
  program: Plan['program'] = null;
  readonly done = new Map<string, { key: string; name: string; result: Json }>();
  readonly begun = new Map<string, { key: string; name: string; args: Json; at: string }>();
  readonly open = new Map<string, OperationInfo>();
  readonly ever = new Map<string, unknown>();

  take(header: SpoolHeader, body: Buffer): void {
    if (header.method === 'PUT') {
      const checkpoint = checkpointOf(header, body);
      const program = header.headers['Ckpt-Program'];
      this.program = programRest(program ? (JSON.parse(program) as Program) : undefined);
      this.checkpoint = checkpoint;
      this.done.clear(); // the state knows of them
      return;
    }
    const path = header.path.split('/').slice(6).map(decodeURIComponent); // what follows /v1/agents/{agent}/runs/{run}/
    const said = JSON.parse(body.toString('utf8')) as Record<string, Json>;
    if (path[0] === 'steps') this.step(header, path, said);
    else if (path[0] === 'operations') this.operation(header, path, said);
    else if (path[0] === 'end' && (said['status'] === 'completed' || said['status'] === 'failed')) this.over();
  }

  private step(header: SpoolHeader, path: string[], said: Record<string, Json>): void {
    const key = path[1] ?? String(said['key']);
    if (!path[1] && this.ever.has(`step ${key}`)) return; // it was not done again
    const name = this.begun.get(key)?.name ?? String(said['name'] ?? stepName(key));
    if (!path[1] && (said['status'] ?? 'started') === 'started') {
      this.begun.set(key, { key, name, args: said['args'] ?? null, at: header.created_at });
      return;
    }
    this.begun.delete(key);
    if ((said['status'] ?? 'succeeded') !== 'succeeded') return;
    const result = revive(said['result'] ?? null) as Json;
    this.done.set(key, { key, name, result });
    this.ever.set(`step ${key}`, result);
  }

  private operation(header: SpoolHeader, path: string[], said: Record<string, Json>): void {
    if (path[1] && path[2] === 'doubt') {
      const open = this.open.get(path[1]);
      if (open) open.error = String(said['error'] ?? '');
      return;
    }
    if (path[1]) {
      this.open.delete(path[1]);
      if (path[2] === 'succeed') this.ever.set(`operation ${path[1]}`, revive(said['result'] ?? null));
      return;
    }
    const key = String(said['key']);
    if (this.ever.has(`operation ${key}`)) return; // it was not done again
    const none = {
      attempt: 1, checkpoint: null, ended_at: null, result: null, error: null, resolution: null, resolved_at: null, resolved_by: null, left_uncertain: false, prompt: null, replayed: false,
      args: said['args'] ?? null, idempotent: said['idempotent'] === true, check: said['check'] === true, result_schema: null,
    };
    if (said['state'] !== undefined) {
      this.checkpoint = checkpointOf({ ...header, query: 'kind=pre_operation' }, Buffer.from(JSON.stringify(said['state'])));
      this.program = null;
      this.done.clear();
    }
    this.open.set(key, { ...none, key, name: String(said['name']), status: 'uncertain', started_at: header.created_at });
  }

  private over(): void {
    this.checkpoint = this.program = null;
    for (const list of [this.done, this.begun, this.open, this.ever]) list.clear();
  }
}

/**
 * A plan without the daemon: from what an earlier process of this run had to
 * spool. What the daemon knows of the run it cannot know.
 */
export async function offlinePlan<S>(delivery: Delivery, name: { agent: string; run: string }, away: SidecarError): Promise<Plan<S>> {
  const told = new Told();
  let unread: unknown;
  const { spool, names } = await delivery.backlog.waiting(name).catch((error: unknown) => {
    unread = error;
    return { spool: undefined, names: [] as string[] };
  });
  const skipped: Plan['skipped'] = [];
  for (const file of names) {
    try {
      const found = await spool!.read(file);
      if (!found) continue; // it was sent just now
      const { header, body } = found;
      const fault = header === null ? 'its first line makes no sense' : faultOf(file, header, body);
      if (header === null || fault !== undefined) throw new Error(fault);
      told.take(header, body);
    } catch (error) {
      skipped.push({ id: file, seq: 0, reason: `this file of the spool cannot be read: ${messageOf(error)}` });
    }
  }
  const fresh = names.length === 0 || (!told.checkpoint && told.ever.size + told.begun.size + told.open.size === 0);
  const reasons = [`The daemon is away: ${away.message}.`];
  if (unread) reasons.push(`It is not known what the spool has of this run, so it starts from the beginning: ${messageOf(unread)}.`);
  else if (fresh) reasons.push('The spool has nothing of this run, so it starts from the beginning; it is not known whether the daemon has something to resume.');
  else reasons.push('The run goes on from what its former process has spooled.');
  if (skipped.length > 0) reasons.push(`Of what the spool has of it, ${skipped.length} files cannot be read.`);
  if (told.open.size > 0) reasons.push(`Nobody knows whether ${[...told.open.keys()].map((key) => JSON.stringify(key)).join(', ')} took effect.`);
  delivery.settings.warn(`agent ${name.agent}, run ${name.run}, starts without the daemon. ${reasons.join(' ')}`);
  const plan: Plan<S> = {
    verdict: 'offline',
    reasons,
    ...name,
    epoch: 0,
    attempt: 0,
    claimed: false,
    checkpoint: told.checkpoint as Stored<S> | null,
    completed_steps: [...told.done.values()],
    interrupted_steps: [...told.begun.values()].map((step) => interrupted(step)),
    uncertain_operations: [...told.open.values()],
    skipped,
    events_after: 0,
    program: told.program,
    continuation_prompt: null,
    accumulated_ms: 0,
    external_session: null,
    memory_diff: null,
    prompt: null,
    questions: [],
    offline: true,
  };
  done.set(plan, told.ever);
  return plan;
}

function interrupted(step: { key: string; name: string; args: Json; at: string }): Plan['interrupted_steps'][number] {
  const text = `The step ${step.key} was interrupted: its process ended before the result was recorded. It may or may not have taken effect; check before you repeat it.`;
  return {
    key: step.key,
    name: step.name,
    args: step.args,
    started_at: step.at,
    synthetic_result: {
      text,
      anthropic: { type: 'tool_result', tool_use_id: step.key, is_error: true, content: text },
      openai: { role: 'tool', tool_call_id: step.key, content: text },
    },
  };
}

/** A checkpoint as far as its request tells of it. */
function checkpointOf(header: SpoolHeader, body: Buffer): Stored {
  const query = new URLSearchParams(header.query);
  const contentType = header.headers['Content-Type'] ?? 'application/octet-stream';
  const labels: Labels = {};
  for (const label of query.getAll('label')) labels[label.slice(0, label.indexOf('='))] = label.slice(label.indexOf('=') + 1);
  const metadata = header.headers['Ckpt-Metadata'];
  const checkpoint: Checkpoint = {
    id: header.path.split('/').pop()!,
    agent: header.agent,
    owner: '',
    run: header.run,
    seq: 0,
    kind: (query.get('kind') ?? 'routine') as Kind,
    parent: query.get('parent'),
    created_at: header.created_at,
    size: body.length,
    stored_size: 0,
    sha256: header.sha256,
    content_type: isJSON(contentType) ? 'application/json' : contentType,
    labels,
    metadata: metadata ? (JSON.parse(metadata) as Record<string, Json>) : {},
    step: query.get('step'),
    operation: null,
    pinned: false,
    suspect: false,
  };
  return withState(checkpoint, body);
}
