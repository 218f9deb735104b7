// Builds the package twice from the same sources: dist/esm and dist/cjs.
import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');

function compile(project) {
  execFileSync(process.execPath, [tsc, '-p', project], { cwd: root, stdio: 'inherit' });
}

rmSync(new URL('../dist', import.meta.url), { recursive: true, force: true });
compile('tsconfig.esm.json');
compile('tsconfig.cjs.json');
// package.json says that .js files are ES modules; these are not.
writeFileSync(new URL('../dist/cjs/package.json', import.meta.url), '{ "type": "commonjs" }\n');
