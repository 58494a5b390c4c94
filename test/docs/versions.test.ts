import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readManifest } from '../../ops/release/packages.ts';
import { PLACES } from '../../ops/release/places.ts';
import { ROOT, readPage } from '../support/docs.ts';

const TOOLS = JSON.parse(readFileSync(join(ROOT, 'locks/package-tools/package.json'), 'utf8')) as {
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly optionalDependencies: Readonly<Record<string, string>>;
};
const oldestNode = readManifest().engines.node.replace('>=', '');

test.for(['docs/how-to/client.md', 'ops/release/readme/client.md'])(
  '%s names the oldest Node that package.json allows',
  (page) => {
    expect(readPage(page)).toContain(`Node ${oldestNode} or later`);
  },
);

test('the page of the client names the runtimes and bundlers that the packages are tested with', () => {
  const page = readPage('docs/how-to/client.md');
  const versionOf = (name: string) => ({ ...TOOLS.devDependencies, ...TOOLS.optionalDependencies })[name] ?? 'missing';
  const minor = (name: string) => versionOf(name).split('.').slice(0, 2).join('.');
  const major = (name: string) => versionOf(name).split('.')[0];
  expect(page).toContain(`Bun ${minor('@oven/bun-linux-x64')} and Deno ${minor('@deno/linux-x64-glibc')}`);
  for (const name of ['webpack', 'rollup', 'vite']) expect(page).toContain(`| ${name} ${major(name)} |`);
});

test('the addresses of the project are in one file', () => {
  expect(PLACES.repository.url).toMatch(/^git\+https:/);
  expect(readPage('docs/quickstart.md')).toContain(`git clone ${PLACES.repository.url.replace('git+', '')}\n`);
  expect(readFileSync(join(ROOT, 'ops/release/packages.ts'), 'utf8')).not.toMatch(/https?:/);
});
