// LangGraph's own suite for checkpointers against the daemon that
// CKPTSIDECAR_BIN names. All of it must pass, and none be skipped: who takes
// another version of the suite says here how many tests that has.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const tests = 726;

const root = fileURLToPath(new URL('..', import.meta.url));

/** Runs the suite and answers an exit code. */
export function langgraph(env) {
  if (Number(process.versions.node.split('.')[0]) < 20) {
    console.log("LangGraph's suite for checkpointers is left out: it needs Node 20");
    return 0;
  }
  const folder = mkdtempSync(join(tmpdir(), 'ckpt-'));
  const report = join(folder, 'report.json');
  const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
  const args = [vitest, 'run', '--root', root, '--config', 'test/langgraph/vitest.config.mjs', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
  const { status } = spawnSync(process.execPath, args, { cwd: root, env: { ...env, LANGSMITH_TRACING: 'false' }, stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) {
    rmSync(folder, { recursive: true, force: true });
    return status ?? 1;
  }
  const { numPassedTests, numTotalTests } = JSON.parse(readFileSync(report, 'utf8'));
  rmSync(folder, { recursive: true, force: true });
  console.log(`LangGraph's suite for checkpointers: ${numPassedTests} of ${tests} passed, ${numTotalTests - numPassedTests} skipped`);
  return numPassedTests === tests && numTotalTests === tests ? 0 : 1;
}
