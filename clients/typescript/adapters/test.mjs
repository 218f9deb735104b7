// Runs the adapters' tests against a real daemon and the real SDKs. The package
// itself is built before; arguments are names of test files.
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('.', import.meta.url));
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
const bin = process.env.CKPTSIDECAR_BIN;
if (!bin) throw new Error('CKPTSIDECAR_BIN is not set: name the ckptsidecar to test with, or say "make clients-adapters"');

const installed = join(root, 'node_modules', 'ckptsidecar');
rmSync(installed, { recursive: true, force: true });
// A copy, as npm would install it: so it finds the SDKs beside itself.
for (const name of ['dist', 'package.json']) cpSync(join(root, '..', name), join(installed, name), { recursive: true });
rmSync(join(root, 'build'), { recursive: true, force: true });
execFileSync(process.execPath, [tsc, '-p', 'tsconfig.json'], { cwd: root, stdio: 'inherit' });

// Nothing of the user's own is touched: neither daemon nor spool nor transcripts.
const home = mkdtempSync(join(tmpdir(), 'ckpt-'));
const env = { ...process.env, CKPTSIDECAR_BIN: bin, HOME: home, XDG_STATE_HOME: join(home, 'state'), XDG_RUNTIME_DIR: home, CLAUDE_CONFIG_DIR: join(home, 'claude') };
for (const name of Object.keys(env)) if (name.startsWith('CKPTSIDECAR_') && name !== 'CKPTSIDECAR_BIN') delete env[name];

const build = join(root, 'build', 'adapters', 'test');
const wanted = process.argv.slice(2);
const files = readdirSync(build).filter((name) => name.endsWith('.test.js') && (wanted.length === 0 || wanted.some((w) => name.startsWith(w))));
const ran = spawnSync(process.execPath, ['--enable-source-maps', '--test', '--test-reporter=spec', ...files.map((name) => join(build, name))], { cwd: root, env, stdio: 'inherit' });
rmSync(home, { recursive: true, force: true });
process.exit(ran.status ?? 1);
