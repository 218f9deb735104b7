import { createHash } from 'node:crypto';

import { encode } from '../encode.js';
import type { Run } from '../run.js';
import type { StepContext } from '../step.js';

/** What of an answer of a model is read here. */
interface Generated {
  content: { type: string; toolCallId?: string }[];
  usage?: { inputTokens?: Tokens; outputTokens?: Tokens };
  request?: unknown;
  response?: { id?: string; headers?: unknown; body?: unknown };
}

type Tokens = number | { total?: number | undefined } | undefined;

interface ExecuteOptions {
  toolCallId: string;
}

/** A tool of the AI SDK, as far as it is used here. */
interface Executable {
  execute?: (input: any, options: any) => unknown;
}

/**
 * Makes the loop of the AI SDK's `generateText` and `ToolLoopAgent` durable: each answer of the model and each call of a tool is a step of a
 * run. Where the process dies, the next one is given the answers and results that are kept, and goes on after them.
 */
export class DurableSteps {
  private readonly asked = new Map<string, number>();
  private readonly turns = new Map<string, string>();

  constructor(private readonly run: Run) {}

  /**
   * For `wrapLanguageModel({ model, middleware: steps.middleware })`. An answer is kept under what was asked, so that the same question gets
   * the same answer in a resumed run. Answers that are streamed are not kept.
   */
  readonly middleware = {
    specificationVersion: 'v3' as const, // version 6 of the SDK asks for it; version 7 takes any
    wrapGenerate: async ({ doGenerate, params, model }: { doGenerate: () => PromiseLike<any>; params: { prompt: unknown }; model: { modelId: string } }): Promise<any> => {
      const digest = createHash('sha256').update(encode([model.modelId, params.prompt]).bytes).digest('hex').slice(0, 32);
      const times = (this.asked.get(digest) ?? 0) + 1;
      this.asked.set(digest, times);
      const key = `model ${digest} ${times}`;
      const ask = async (step: StepContext): Promise<Generated> => {
        const { request: _, response, ...rest } = (await doGenerate()) as Generated;
        const { headers: _h, body: _b, ...about } = response ?? {};
        const { inputTokens, outputTokens } = rest.usage ?? {};
        step.measure({ ...tokens('inputTokens', inputTokens), ...tokens('outputTokens', outputTokens) });
        return { ...rest, response: about };
      };
      const answer = await this.run.step<Generated>(key, ask, { name: 'model' });
      const turn = answer.response?.id ?? key;
      for (const part of answer.content) if (part.toolCallId !== undefined) this.turns.set(part.toolCallId, turn.slice(0, 256));
      return answer;
    },
  };

  /**
   * The same tools, whose calls are steps: a call that has succeeded is not made again. A call that the process died in is made again. `negative` says
   * of a result whether the answer was no, such as a search that found nothing.
   */
  tools<Tools extends Record<string, Executable>>(tools: Tools, options: { negative?: (name: string, answer: unknown) => boolean } = {}): Tools {
    const { negative } = options;
    const durable = Object.entries(tools).map(([name, tool]) => {
      const { execute } = tool;
      if (!execute) return [name, tool];
      const called = (input: unknown, about: ExecuteOptions): Promise<unknown> => {
        const turn = this.turns.get(about.toolCallId);
        return this.run.step(`tool ${about.toolCallId}`, () => last(execute.call(tool, input, about)), {
          name,
          args: input,
          ...(turn === undefined ? {} : { turn }),
          ...(negative ? { negative: (answer: unknown) => negative(name, answer) } : {}),
        });
      };
      return [name, { ...tool, execute: called }];
    });
    return Object.fromEntries(durable) as Tools;
  }
}

function tokens(name: string, value: Tokens): Record<string, number> {
  const total = typeof value === 'object' ? value.total : value;
  return total === undefined ? {} : { [name]: total };
}

/** What a tool answers in the end; one that answers bit by bit answers with its last. */
async function last(answer: unknown): Promise<unknown> {
  if (typeof answer !== 'object' || answer === null || !(Symbol.asyncIterator in answer)) return answer;
  let final: unknown;
  for await (const part of answer as AsyncIterable<unknown>) final = part;
  return final;
}
