// The official inspector, as a command: it lists and calls every tool.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { bin, startDaemon } from '../daemon.mjs';

const cli = createRequire(import.meta.url).resolve('@modelcontextprotocol/inspector/cli/build/cli.js');
let daemon;
before(async () => (daemon = await startDaemon()));
after(() => daemon.stop());

/** Runs the inspector, and answers its exit code and what it printed. */
function inspect(...args) {
  const child = spawn(process.execPath, [cli, '--cli', bin, 'mcp', '--agent', 'inspected', '--socket', daemon.socket, ...args]);
  let out = '';
  let err = '';
  child.stdout.on('data', (text) => (out += text));
  child.stderr.on('data', (text) => (err += text));
  return new Promise((done) => child.on('close', (code) => done({ code, out, err })));
}

async function ask(...args) {
  const { code, out, err } = await inspect(...args);
  assert.equal(code, 0, err);
  return JSON.parse(out);
}

/** Calls a tool, and answers its result. Each call is a server of its own, as if the host had been started anew. */
const call = (tool, given = {}) =>
  ask('--method', 'tools/call', '--tool-name', tool, ...Object.entries(given).flatMap(([name, value]) => ['--tool-arg', `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`]));


function check(result, tool) {
  assert.notEqual(result.isError, true, `${tool}: ${result.content[0].text}`);
  assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent);
  return result.structuredContent;
}

test('lists every tool', async () => {
  const { tools } = await ask('--method', 'tools/list');
  assert.deepEqual(tools.map((tool) => tool.name).sort(), [
    'ask_person', 'begin_operation', 'drift_status', 'finish_operation', 'list_checkpoints', 'report_step', 'restore_checkpoint', 'resume_run', 'save_checkpoint',
  ]);
  for (const tool of tools) {
    assert.equal(tool.inputSchema.additionalProperties, false, tool.name);
    assert.deepEqual(tool.outputSchema, { type: 'object' }, tool.name);
    assert.equal(tool.annotations.openWorldHint, false, tool.name);
    assert.equal(tool.annotations.destructiveHint, false, tool.name);
  }
});

test('calls every tool', async () => {
  assert.equal(check(await call('resume_run'), 'resume_run').verdict, 'fresh');
  check(await call('list_checkpoints'), 'list_checkpoints');
  check(await call('drift_status'), 'drift_status');
  assert.equal(check(await call('ask_person', { key: 'q', question: 'Tea?', choices: ['yes', 'no'], wait_seconds: 0, run: 'q' }), 'ask_person').status, 'open');
  // One run a call: a server that ends suspends its run, and the next one has to resume it first.
  const saved = check(await call('save_checkpoint', { state: { goal: 'tea' }, summary: 'water is hot', run: 'a' }), 'save_checkpoint');
  assert.equal(saved.checkpoint.seq, 1);
  const begun = check(await call('begin_operation', { key: 'pour', run: 'b' }), 'begin_operation');
  assert.equal(begun.go_ahead, true);
  const step = check(await call('report_step', { name: 'taste', result: 'good', duration_ms: 12, run: 'c' }), 'report_step');
  assert.equal(step.status, 'succeeded');
  const back = check(await call('restore_checkpoint', { reason: 'once more', checkpoint: saved.checkpoint.id }), 'restore_checkpoint');
  assert.deepEqual(back.state, { goal: 'tea' });
  assert.equal(check(await call('resume_run', { run: 'a' }), 'resume_run').verdict, 'resume');
  // An operation outlives the server that began it only as an uncertain one, which a person settles.
  assert.equal(check(await call('resume_run', { run: 'b' }), 'resume_run').verdict, 'ask');
  const refused = await call('finish_operation', { key: 'pour', status: 'succeeded', run: 'b' });
  assert.equal(refused.isError, true);
  assert.match(refused.content[0].text, /Call resume_run first/);
});

test('reads resources and the prompt', async () => {
  const { resources } = await ask('--method', 'resources/list');
  assert.ok(resources.length >= 1);
  const { resourceTemplates } = await ask('--method', 'resources/templates/list');
  assert.equal(resourceTemplates.length, 2);
  const read = await ask('--method', 'resources/read', '--uri', 'ckptsidecar://latest/a');
  assert.deepEqual(JSON.parse(read.contents[0].text), { goal: 'tea' });
  const { prompts } = await ask('--method', 'prompts/list');
  assert.deepEqual(prompts.map((prompt) => prompt.name), ['resume']);
  const prompt = await ask('--method', 'prompts/get', '--prompt-name', 'resume', '--prompt-args', 'run=a');
  assert.match(prompt.messages[0].content.text, /First call resume_run/);
});

test('a wrong argument is a result, an unknown tool an error of the protocol', async () => {
  const wrong = await call('save_checkpoint', { summary: 'no state' });
  assert.equal(wrong.isError, true);
  assert.match(wrong.content[0].text, /argument state is missing/);
  const unknown = await inspect('--method', 'resources/read', '--uri', 'ckptsidecar://checkpoint/7');
  assert.notEqual(unknown.code, 0);
  assert.match(unknown.err + unknown.out, /Resource not found/);
});
