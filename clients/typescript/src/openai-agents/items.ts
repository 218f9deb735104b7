// What the SDK takes as an item of a conversation. A transaction is refused where the SDK's own session refuses it, before anything changes.

/** Whether a member has what it must have. */
type Check = (value: unknown) => boolean;

const text: Check = (v) => typeof v === 'string';
const anything: Check = () => true;
const object: Check = (v) => typeof v === 'object' && v !== null && !Array.isArray(v);
const list = (of: Check): Check => (v) => Array.isArray(v) && v.every(of);
const either = (...checks: Check[]): Check => (v) => checks.some((check) => check(v));
const word = (...words: string[]): Check => (v) => words.includes(v as string);
const maybe = (check: Check): Check => (v) => v === undefined || check(v);

/** An object whose members are right. Members that are not named may be anything. */
const shape = (members: Record<string, Check>): Check => (v) => object(v) && Object.entries(members).every(([name, check]) => check((v as Record<string, unknown>)[name]));

/** An object whose `type` says what its other members are. */
const variant = (variants: Record<string, Record<string, Check>>): Check => (v) => {
  const type = (v as { type?: unknown } | null)?.type;
  return object(v) && typeof type === 'string' && Object.hasOwn(variants, type) && shape(variants[type]!)(v);
};

const progress = word('in_progress', 'completed', 'incomplete');
const reference = shape({ id: text });
const image = either(text, reference);
const file = either(text, reference, shape({ url: text }));
const said: Record<string, Check> = { audio: either(text, reference) };
const input = { input_text: { text }, input_image: { image: maybe(image) }, input_file: { file: maybe(file) } };
const outcome = variant({ timeout: {}, exit: { exitCode: (v) => v === null || Number.isInteger(v) } });
const number: Check = (v) => typeof v === 'number';
const place = { x: number, y: number };
const action = variant({
  screenshot: {},
  wait: {},
  click: { ...place, button: word('left', 'right', 'wheel', 'back', 'forward') },
  double_click: place,
  move: place,
  scroll: { ...place, scroll_x: number, scroll_y: number },
  type: { text },
  keypress: { keys: list(text) },
  drag: { path: list(shape(place)) },
});
const acts: Check = (v) => Array.isArray(v) && v.length > 0 && v.every(action);
const patch = variant({ create_file: { path: text, diff: text }, update_file: { path: text, diff: text }, delete_file: { path: text } });

const messages: Record<string, Record<string, Check>> = {
  user: { content: either(text, list(variant({ ...input, audio: said }))) },
  system: { content: text },
  assistant: { status: progress, content: list(variant({ output_text: { text }, refusal: { refusal: text }, audio: said, image: { image: text } })) },
};

/** What the items of each type must have. A type that is not here is of a newer SDK, and is taken as it is. */
const items: Record<string, Record<string, Check>> = {
  hosted_tool_call: { name: text, arguments: maybe(text), status: maybe(text), output: maybe(text) },
  program: { callId: text, code: text, fingerprint: text },
  program_output: { callId: text, output: text, status: word('completed', 'incomplete') },
  function_call: { callId: text, name: text, arguments: text, status: maybe(progress) },
  function_call_result: { callId: text, name: text, status: progress, output: either(text, variant({ text: { text }, image: {}, file: { file: anything } }), list(variant(input))) },
  tool_search_output: { tools: list(object) },
  computer_call: { callId: text, status: progress, action: maybe(action), actions: maybe(acts) },
  computer_call_result: { callId: text, output: variant({ computer_screenshot: { data: text } }) },
  shell_call: { callId: text, status: maybe(progress), action: shape({ commands: list(text) }) },
  shell_call_output: { callId: text, status: maybe(progress), output: list(shape({ stdout: text, stderr: text, outcome })) },
  apply_patch_call: { callId: text, status: word('in_progress', 'completed'), operation: patch },
  apply_patch_call_output: { callId: text, status: word('completed', 'failed'), output: maybe(text) },
  reasoning: { content: list(variant({ input_text: { text } })) },
  compaction: { encrypted_content: text },
};

/** Says whether something is an item that the SDK would take. */
export function isItem(value: unknown): boolean {
  if (!shape({ id: maybe(text), providerData: maybe(object) })(value)) return false;
  const { type, role } = value as { type?: unknown; role?: unknown };
  if (type === undefined || type === 'message') return typeof role === 'string' && Object.hasOwn(messages, role) && shape(messages[role]!)(value);
  if (typeof type !== 'string') return false;
  if (type === 'computer_call' && (value as { action?: unknown }).action === undefined && (value as { actions?: unknown }).actions === undefined) return false;
  return !Object.hasOwn(items, type) || shape(items[type]!)(value);
}
