// The official TypeScript SDK as a client: saves, loses its server to SIGKILL, and goes on.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ErrorCode, McpError } from '@modelcontextprotocol/sdk/types.js';
import { bin, startDaemon } from '../daemon.mjs';

let daemon;
const open = [];
before(async () => (daemon = await startDaemon()));
after(async () => {
  for (const client of open) await client.close();
  await daemon.stop();
});

async function connect(agent) {
  const transport = new StdioClientTransport({ command: bin, args: ['mcp', '--agent', agent, '--socket', daemon.socket], stderr: 'inherit' });
  const client = new Client({ name: 'test', version: '1.0.0' });
  await client.connect(transport);
  await client.listTools();
  open.push(client);
  return { client, pid: transport.pid, call: (name, given = {}) => client.callTool({ name, arguments: given }) };
}

async function good(host, name, given) {
  const result = await host.call(name, given);
  assert.notEqual(result.isError, true, `${name}: ${result.content[0].text}`);
  return result.structuredContent;
}

test('save, kill -9 of the server, resume', async () => {
  const first = await connect('survivor');
  await good(first, 'save_checkpoint', { state: { done: ['a'], next: 'b' }, summary: 'a is done' });
  await good(first, 'report_step', { name: 'build', key: 'build', result: { ok: true } });
  await good(first, 'report_step', { name: 'test', key: 'test', status: 'started' });
  process.kill(first.pid, 'SIGKILL');
  await assert.rejects(first.call('list_checkpoints'));

  const second = await connect('survivor');
  const refused = await second.call('save_checkpoint', { state: {} });
  assert.equal(refused.isError, true);
  assert.match(refused.content[0].text, /Call resume_run first/);
  const plan = await good(second, 'resume_run', { reason: 'the server was killed' });
  assert.equal(plan.verdict, 'repair');
  assert.equal(plan.claimed, true);
  assert.deepEqual(plan.state, { done: ['a'], next: 'b' });
  assert.deepEqual(plan.completed_steps, [{ key: 'build', name: 'build', result: { ok: true } }]);
  assert.equal(plan.interrupted_steps[0].key, 'test');
  const again = await good(second, 'report_step', { name: 'build', key: 'build', status: 'started' });
  assert.equal(again.replayed, true);
  assert.equal((await good(second, 'save_checkpoint', { state: { done: ['a', 'b'] } })).checkpoint.seq, 2);
});

test('an operation: begun, failed, gone back', async () => {
  const host = await connect('operator');
  await good(host, 'save_checkpoint', { state: { version: 1 } });
  assert.equal((await good(host, 'begin_operation', { key: 'deploy-2' })).go_ahead, true);
  const failed = await good(host, 'finish_operation', { key: 'deploy-2', status: 'failed', error: 'no room' });
  assert.deepEqual(failed.state, { version: 1 });
  await good(host, 'begin_operation', { key: 'deploy-2' });
  await good(host, 'finish_operation', { key: 'deploy-2', status: 'succeeded', result: { url: 'x' } });
  const again = await good(host, 'begin_operation', { key: 'deploy-2' });
  assert.equal(again.go_ahead, false);
  assert.deepEqual(again.result, { url: 'x' });
});

test('a loop is told in the answer', async () => {
  const host = await connect('looper');
  const { checkpoint } = await good(host, 'save_checkpoint', { state: {} });
  const said = [];
  for (let i = 0; i < 5; i++) said.push(await good(host, 'report_step', { name: 'search', args: { q: 'x' }, result: 'nothing' }));
  assert.deepEqual(said.map((answer) => answer.drift.verdict), ['none', 'none', 'none', 'warn', 'critical']);
  assert.match(said[4].message, new RegExp(`restore_checkpoint with checkpoint ${checkpoint.id}`));
  assert.equal((await good(host, 'drift_status')).go_back_to, checkpoint.id);
});

test('errors of the protocol are McpErrors, wrong arguments are not', async () => {
  const host = await connect('wrong');
  await assert.rejects(host.call('delete_checkpoint'), (error) => error instanceof McpError && error.code === ErrorCode.InvalidParams);
  await assert.rejects(host.client.readResource({ uri: 'ckptsidecar://checkpoint/7' }), (error) => error instanceof McpError && error.code === ErrorCode.InvalidParams);
  await assert.rejects(host.client.getPrompt({ name: 'nothing' }), McpError);
  const wrong = await host.call('finish_operation', { key: 'x', status: 'done' });
  assert.equal(wrong.isError, true);
  assert.match(wrong.content[0].text, /status is "done": it must be one of succeeded, failed/);
});

test('resources and the prompt', async () => {
  const host = await connect('reader');
  assert.deepEqual((await host.client.listResources()).resources, []);
  await good(host, 'save_checkpoint', { state: { n: 1 }, summary: 'begun' });
  const { resources } = await host.client.listResources();
  assert.equal(resources.length, 1);
  assert.equal((await host.client.readResource({ uri: resources[0].uri })).contents[0].text, '{"n":1}');
  assert.equal((await host.client.readResource({ uri: 'ckptsidecar://latest/main' })).contents[0].text, '{"n":1}');
  const prompt = await host.client.getPrompt({ name: 'resume', arguments: { run: 'main' } });
  assert.match(prompt.messages[0].content.text, /First call resume_run/);
});
