import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';

const BOOTSTRAP = join(ROOT, 'ops/dev/bootstrap.mjs');

/** Runs a command of the checkout as on a platform without a Node in the lockfile. */
function onStrangePlatform(version: string) {
  const strange = [
    "Object.defineProperty(process, 'arch', { value: 'strange' })",
    `Object.defineProperty(process.versions, 'node', { value: '${version}' })`,
    `Object.defineProperty(process, 'version', { value: 'v${version}' })`,
  ].join(';');
  const asThere = ['--import', `data:text/javascript,${encodeURIComponent(strange)}`];
  return promisify(execFile)(process.execPath, [...asThere, BOOTSTRAP, 'idalloc', '--version']);
}

test('bootstrap uses the installed Node on a platform without a Node in the lockfile', async () => {
  expect((await onStrangePlatform('24.0.0')).stdout).toMatch(/^\d+\.\d+\.\d+(-dev)?\n$/);
});

test('bootstrap runs a file of the checkout with options of Node, and a program of an installed package', async () => {
  const run = (...words: readonly string[]) => promisify(execFile)(process.execPath, [BOOTSTRAP, ...words]);
  expect((await run('--no-warnings', 'ops/release/packages.ts', '--help')).stdout).toContain('Builds the npm packages');
  expect((await run('tsc', '--version')).stdout).toMatch(/^Version \d/);
});

test('bootstrap runs the command of the checkout without loading the compiler of TypeScript, once its code is compiled', async () => {
  const meter = `process.on('exit', () => console.error(process.version, process.moduleLoadList.some((name) => name.includes('amaro'))))`;
  const env = { ...process.env, NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(meter)}` };
  const run = () => promisify(execFile)(process.execPath, [BOOTSTRAP, 'idalloc', '--version'], { env });
  await run();
  expect((await run()).stderr).toBe(`${process.version} false\n`.repeat(2)); // of bootstrap, and of the command
});

test('bootstrap names the version to install if the installed Node is too old', async () => {
  await expect(onStrangePlatform('22.12.0')).rejects.toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/no Node for \w+-strange, and this is v22\.12\.0: install Node 24 or later/),
  });
});
