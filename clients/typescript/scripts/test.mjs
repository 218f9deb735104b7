// Runs the tests against a real daemon: the one that CKPTSIDECAR_BIN names, or
// one that is built from this repository. Arguments are names of test files.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { langgraph } from './langgraph.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
const build = join(root, 'build');

function binary() {
  if (process.env.CKPTSIDECAR_BIN) return process.env.CKPTSIDECAR_BIN;
  const file = join(build, process.platform === 'win32' ? 'ckptsidecar.exe' : 'ckptsidecar');
  execFileSync('go', ['build', '-o', file, './cmd/ckptsidecar'], { cwd: join(root, '..', '..'), stdio: 'inherit', env: { ...process.env, CGO_ENABLED: '0' } });
  return file;
}

mkdirSync(build, { recursive: true });
const bin = binary();
for (const name of readdirSync(build)) if (name.endsWith('.js')) rmSync(join(build, name));
execFileSync(process.execPath, [tsc, '-p', 'tsconfig.test.json'], { cwd: root, stdio: 'inherit' });

// Nothing of the user's own is touched: neither daemon nor spool.
const home = mkdtempSync(join(tmpdir(), 'ckpt-'));
const env = { ...process.env, CKPTSIDECAR_BIN: bin, HOME: home, XDG_STATE_HOME: join(home, 'state'), XDG_RUNTIME_DIR: home };
for (const name of Object.keys(env)) if (name.startsWith('CKPTSIDECAR_') && name !== 'CKPTSIDECAR_BIN') delete env[name];

/** Runs test files and answers their exit code; what they say is said at once, or with `later` at their end. */
function run(files, later) {
  if (files.length === 0) return Promise.resolve(0);
  const child = spawn(process.execPath, ['--enable-source-maps', '--test', '--test-reporter=spec', '--test-concurrency=3', ...files], { cwd: root, env, stdio: ['ignore', later ? 'pipe' : 'inherit', 'inherit'] });
  let said = '';
  child.stdout?.on('data', (text) => (said += text));
  return new Promise((done) =>
    child.on('close', (code) => {
      process.stdout.write(said);
      done(code ?? 1);
    }),
  );
}

const wanted = process.argv.slice(2);
const files = readdirSync(build)
  .filter((name) => name.endsWith('.test.js') && (wanted.length === 0 || wanted.some((w) => name.startsWith(w))))
  .map((name) => join(build, name));
const waits = (file) => file.endsWith('away.test.js'); // it has little to do, so the others need not wait for it
const codes = await Promise.all([run(files.filter((file) => !waits(file)), false), run(files.filter(waits), true)]);
if (wanted.length === 0 || wanted.some((name) => 'langgraph-suite'.startsWith(name))) codes.push(langgraph(env));
rmSync(home, { recursive: true, force: true });
process.exit(Math.max(...codes));
