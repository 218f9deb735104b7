// An agent of the AI SDK that writes down its effects, and goes on where it was: EFFECTS.
// Each line is `asked N` or `effect N` when the model is asked or the tool called, and `kept …` when the next thing shows that this is on disk.
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

import { generateText, isStepCount, tool, wrapLanguageModel } from 'ai';
import { MockLanguageModelV4 } from 'ai/test';
import { Sidecar } from 'ckptsidecar';
import { DurableSteps } from 'ckptsidecar/ai-sdk';
import { z } from 'zod';

const effects = process.argv[2]!;
const note = (line: string): void => appendFileSync(effects, `${line}\n`);
const most = 8;

// A script, so that this needs no model: it counts the results that it sees, and calls the tool again with the next number.
const script = new MockLanguageModelV4({
  doGenerate: async ({ prompt }) => {
    const n = prompt.filter((m) => m.role === 'tool').length + 1;
    note(`asked ${n}`);
    await sleep(Math.random() * 10);
    const usage = { inputTokens: { total: n, noCache: n, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } };
    const about = { usage, warnings: [], response: { id: `answer-${n}`, timestamp: new Date(0), modelId: 'script', headers: { secret: 'x' } } };
    // Each answer names the call anew, as a model does: who asks again gets another id.
    const toolCallId = `call-${n}-${Math.random()}`;
    return n > most
      ? { ...about, content: [{ type: 'text', text: 'the sum is 36' }], finishReason: { unified: 'stop', raw: 'stop' } }
      : { ...about, content: [{ type: 'tool-call', toolCallId, toolName: 'add', input: JSON.stringify({ n }) }], finishReason: { unified: 'tool-calls', raw: 'tool_use' } };
  },
});

const add = tool({
  description: 'adds a number',
  inputSchema: z.object({ n: z.number() }),
  execute: async ({ n }) => {
    note(`kept asked ${n}`);
    note(`effect ${n}`);
    await sleep(Math.random() * 10);
    return { added: n };
  },
});

const result = await new Sidecar({ deadline: '30s', startDeadline: '30s' }).agent('ai-killed').run(async (run) => {
  const steps = new DurableSteps(run);
  const { text } = await generateText({
    model: wrapLanguageModel({ model: script, middleware: steps.middleware }),
    tools: steps.tools({ add }, { negative: (_, answer) => (answer as { added: number }).added === 4 }),
    stopWhen: isStepCount(20),
    prompt: 'add the numbers',
    onStepEnd: ({ toolResults }) => {
      for (const { output } of toolResults) note(`kept effect ${(output as { added: number }).added}`);
    },
  });
  return text;
});
note(`result ${result}`);
