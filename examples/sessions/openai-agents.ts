// An agent of the OpenAI Agents SDK whose conversation outlives its process:
// each start is one turn, and it knows what was said in the turns before.
//
//   node openai-agents.js SESSION TEXT
import { Agent, Runner, tool } from '@openai/agents-core';
import { assistantMessage, functionCall, modelResponder, ScriptedModel } from '@openai/agents-core/testing';
import { SidecarSession } from 'ckptsidecar/openai-agents';

const [sessionId = 'demo', text = 'hello'] = process.argv.slice(2);

const clock = tool({
  name: 'clock',
  description: 'says the time',
  parameters: { type: 'object', properties: {}, required: [], additionalProperties: false },
  strict: true,
  execute: async () => '12:00',
});

// A script, so that this needs no model. Put yours in its place: everything else stays.
const model = new ScriptedModel([
  [functionCall('clock', {}, { callId: `call-${process.pid}` })],
  modelResponder(({ request }) => {
    const items = typeof request.input === 'string' ? [] : request.input;
    const said = items.flatMap((item) => ('role' in item && item.role === 'user' ? [item.content] : []));
    return [assistantMessage(`you have said: ${said.join(', ')}`)];
  }),
]);

const agent = new Agent({ name: 'listener', model, tools: [clock] });
const session = new SidecarSession({ sessionId });
const { finalOutput } = await new Runner({ tracingDisabled: true }).run(agent, text, { session });
console.log(finalOutput);
