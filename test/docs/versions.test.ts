import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readManifest } from '../../ops/release/packages.ts';
import { PLACES } from '../../ops/release/places.ts';
import { ROOT, readPage } from '../support/docs.ts';

const TOOLS = JSON.parse(readFileSync(join(ROOT, 'locks/package-tools/package.json'), 'utf8')) as {
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly optionalDependencies: Readonly<Record<string, string>>;
};
const oldestNode = readManifest().engines.node.replace('>=', '');

test.for(['docs/how-to/client.md', 'ops/release/readme/client.md', 'README.md', 'docs/quickstart.md'])(
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

describe('the page of versions', () => {
  const page = readPage('docs/reference/versions.md');
  const rowOf = (what: string) => page.split('\n').find((line) => line.startsWith(`| ${what}`)) ?? '';
  const pinned = (file: string, pattern: RegExp) => pattern.exec(readPage(file))?.[1] ?? 'missing';
  const { peerDependencies = {} } = JSON.parse(readPage('package.json'));

  test.for([
    ['Kafka, for workers', '2.3', pinned('locks/kafka/pom.xml', /<kafka\.version>([^<]+)</)],
    ['etcd', '3.5', pinned('locks/etcd/go.mod', /etcd\/server\/v3 v(\S+)/)],
    [
      'Node, for workers',
      pinned('ops/release/packages.ts', /WORKER_NODE = '>=([\d.]+)'/),
      TOOLS.optionalDependencies['node-24-linux-x64']?.split('@').at(-1),
    ],
    ['Node, for `@idalloc/client`', oldestNode, '20, 22 and 24'],
    ['TypeScript', '5.0', '5.0 and the newest'],
    ['NestJS', '11', peerDependencies['@nestjs/common']?.match(/\d+(?=\.0\.0)/g)?.join(' and ')],
    ['Kubernetes', pinned('ops/helm/idalloc/Chart.yaml', /kubeVersion: ">=(\d+\.\d+)/), 'its API server'],
  ] as const)('has the oldest and the tested version of %s', ([what, oldest, tested]) => {
    expect(rowOf(what)).toContain(`| ${oldest} | ${tested}`);
  });

  test('has the oldest Kafka that a command accepts', () => {
    expect(readPage('src/cli/doctor/kafka.ts')).toContain('run Kafka 2.3 or later');
  });

  test('has the format of the index that this release writes', () => {
    const [minor = ''] = /^\d+\.\d+/.exec(readManifest().version) ?? [];
    const format = pinned('src/adapters/index/sqlite-index.ts', /^const FORMAT = (\d+);/m);
    expect(page).toMatch(new RegExp(`^\\| ${minor} \\| format ${format}\\b`, 'm'));
  });
});
