// Tests the clients with the newest versions of the frameworks, instead of those that the lockfiles pin: `make clients-latest`.
// It works in a copy in a temporary folder, so that nothing of the repository changes. It prints the versions that it tested.
// CKPTSIDECAR_BIN names the program. Arguments choose parts: langgraph, adapters, mcp.
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

if (!process.env.CKPTSIDECAR_BIN) throw new Error('CKPTSIDECAR_BIN is not set: name the ckptsidecar to test with, or say "make clients-latest"');

const repository = fileURLToPath(new URL('..', import.meta.url));
const copy = mkdtempSync(join(tmpdir(), 'ckpt-latest-'));

/** The parts: a folder, the packages that are taken at their newest version, and what is run. */
const parts = {
  langgraph: {
    folder: 'clients/typescript',
    latest: ['@langchain/core', '@langchain/langgraph', '@langchain/langgraph-checkpoint', '@langchain/langgraph-checkpoint-validation'],
    run: [
      ['npm', 'run', 'build'],
      ['npm', 'run', 'check'],
      ['node', 'scripts/test.mjs', 'langgraph'],
    ],
  },
  adapters: {
    folder: 'clients/typescript/adapters',
    needs: 'langgraph', // it uses the package that was built there
    latest: ['@openai/agents-core', '@anthropic-ai/claude-agent-sdk', '@modelcontextprotocol/client', '@mastra/core', 'ai'],
    run: [['npm', 'test']],
  },
  mcp: {
    folder: 'e2e/mcp',
    latest: ['@modelcontextprotocol/sdk'],
    omit: ['@modelcontextprotocol/inspector'], // the newest one needs Node 22
    run: [['node', '--test', 'test/sdk.test.mjs']],
  },
};

function run(cwd, [command, ...args]) {
  console.log(`> ${[command, ...args].join(' ')}`);
  const { status } = spawnSync(command, args, { cwd, stdio: 'inherit', shell: process.platform === 'win32' && command === 'npm' });
  if (status !== 0) throw new Error(`${[command, ...args].join(' ')} ended with ${status}`);
}

/** Installs a part at the newest versions, and answers these. */
function install(part) {
  const cwd = join(copy, part.folder);
  const file = join(cwd, 'package.json');
  const manifest = JSON.parse(readFileSync(file, 'utf8'));
  for (const name of part.latest) manifest.devDependencies[name] = 'latest';
  for (const name of part.omit ?? []) delete manifest.devDependencies[name];
  delete manifest.overrides;
  writeFileSync(file, JSON.stringify(manifest, null, 2));
  rmSync(join(cwd, 'package-lock.json'), { force: true });
  run(cwd, ['npm', 'install', '--ignore-scripts', '--no-audit', '--no-fund']);
  return part.latest.map((name) => `${name} ${JSON.parse(readFileSync(join(cwd, 'node_modules', name, 'package.json'), 'utf8')).version}`);
}

const wanted = process.argv.slice(2);
const chosen = Object.keys(parts).filter((name) => wanted.length === 0 || wanted.includes(name));
const versions = [];
try {
  for (const file of execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard', 'clients', 'e2e/mcp', 'docs', 'examples'], { cwd: repository, encoding: 'utf8' }).split('\0')) {
    if (file) cpSync(join(repository, file), join(copy, file));
  }
  for (const name of Object.keys(parts)) {
    const part = parts[name];
    const needed = chosen.some((other) => parts[other].needs === name);
    if (!chosen.includes(name) && !needed) continue;
    const installed = install(part);
    if (!chosen.includes(name)) {
      run(join(copy, part.folder), part.run[0]); // the build alone
      continue;
    }
    versions.push(...installed);
    for (const command of part.run) run(join(copy, part.folder), command);
  }
  console.log(`passed with Node ${process.versions.node} and\n  ${versions.join('\n  ')}`);
} finally {
  rmSync(copy, { recursive: true, force: true, maxRetries: 5 });
}
