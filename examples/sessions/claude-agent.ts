// Claude Code, driven by the Claude Agent SDK, with its transcript in
// ckptsidecar: a session can be resumed where its files are not, such as in a
// new container on this host.
//
//   node claude-agent.js TEXT [SESSION-TO-RESUME]
import { query } from '@anthropic-ai/claude-agent-sdk';
import { SidecarSessionStore } from 'ckptsidecar/claude-agent';

const [prompt = 'hello', resume] = process.argv.slice(2);
const executable = process.env['CLAUDE_CODE']; // another Claude Code than the SDK's own

const options = {
  sessionStore: new SidecarSessionStore(),
  ...(resume ? { resume } : {}),
  ...(executable ? { pathToClaudeCodeExecutable: executable } : {}),
};
for await (const message of query({ prompt, options })) {
  if (message.type === 'result') console.log(`${message.session_id} ${message.subtype === 'success' ? message.result : message.subtype}`);
}
