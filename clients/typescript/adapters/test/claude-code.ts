// Stands in for the program Claude Code, which needs a model: it speaks the
// SDK's protocol, keeps its transcript on disk, and mirrors it to the SDK.
import { randomUUID } from 'node:crypto';
import { appendFileSync, existsSync, mkdirSync, readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';

interface Line {
  type: string;
  uuid?: string;
  message?: { content: string };
}

const cwd = realpathSync(process.cwd());
const resumed = process.argv.flatMap((arg, n) => (arg === '--resume' ? process.argv[n + 1]! : arg.startsWith('--resume=') ? arg.slice(9) : []))[0];
const sessionId = resumed ?? randomUUID();
const filePath = join(process.env['CLAUDE_CONFIG_DIR']!, 'projects', cwd.replace(/[^A-Za-z0-9]/g, '-'), `${sessionId}.jsonl`);
const known: Line[] = existsSync(filePath) ? readFileSync(filePath, 'utf8').trim().split('\n').map((line) => JSON.parse(line) as Line) : [];

const say = (message: object): void => void process.stdout.write(`${JSON.stringify(message)}\n`);

function write(type: 'user' | 'assistant', content: unknown): void {
  const common = { isSidechain: false, userType: 'external', cwd, sessionId, version: '2.1.330', timestamp: new Date().toISOString() };
  const line = { ...common, type, uuid: randomUUID(), parentUuid: known.at(-1)?.uuid ?? null, message: { role: type, content } } as Line & object;
  known.push(line);
  mkdirSync(dirname(filePath), { recursive: true });
  appendFileSync(filePath, `${JSON.stringify(line)}\n`);
  say({ type: 'transcript_mirror', filePath, entries: [line] });
}

function answer(prompt: unknown): void {
  const text = typeof prompt === 'string' ? prompt : (prompt as { text: string }[]).map((block) => block.text).join('');
  say({ type: 'system', subtype: 'init', session_id: sessionId, uuid: randomUUID(), cwd, tools: [], mcp_servers: [], model: 'none', permissionMode: 'default', slash_commands: [], apiKeySource: 'none' });
  write('user', text);
  const result = `you have said: ${known.flatMap((line) => (line.type === 'user' ? line.message!.content : [])).join(', ')}`;
  write('assistant', [{ type: 'text', text: result }]);
  say({ type: 'result', subtype: 'success', is_error: false, result, session_id: sessionId, uuid: randomUUID(), num_turns: 1, duration_ms: 1, duration_api_ms: 1, total_cost_usd: 0, usage: {}, permission_denials: [] });
}

for await (const text of createInterface({ input: process.stdin })) {
  const message = JSON.parse(text) as { type: string; request_id?: string; message?: { content: unknown } };
  if (message.type === 'control_request') say({ type: 'control_response', response: { subtype: 'success', request_id: message.request_id, response: {} } });
  if (message.type === 'user') answer(message.message!.content);
}
