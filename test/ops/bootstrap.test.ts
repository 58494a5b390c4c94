import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';

const BOOTSTRAP = join(ROOT, 'ops/dev/bootstrap.mjs');

/** Runs a command of the checkout as on a platform that the lockfile has no Node for. */
function onStrangePlatform(version: string) {
  const strange = [
    "Object.defineProperty(process, 'arch', { value: 'strange' })",
    `Object.defineProperty(process.versions, 'node', { value: '${version}' })`,
    `Object.defineProperty(process, 'version', { value: 'v${version}' })`,
  ].join(';');
  const asThere = ['--import', `data:text/javascript,${encodeURIComponent(strange)}`];
  return promisify(execFile)(process.execPath, [...asThere, BOOTSTRAP, 'idalloc', '--version']);
}

test('where the lockfile has no Node for the platform, the one that is there will do', async () => {
  expect((await onStrangePlatform('24.0.0')).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});

test('where that is too old, the version to install is named', async () => {
  await expect(onStrangePlatform('22.12.0')).rejects.toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/no Node for \w+-strange, and this is v22\.12\.0: install Node 24 or later/),
  });
});
