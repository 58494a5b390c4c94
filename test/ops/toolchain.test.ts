import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ensureTools, isAtLeast, parseVersion, requireTools, toolFaults, which } from '../../ops/bare/toolchain.ts';

let dir: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'idalloc-tools-'));
});

afterEach(() => rmSync(dir, { recursive: true }));

function program(name: string, says: string): void {
  const path = join(dir, name);
  writeFileSync(path, `#!/bin/sh\necho '${says}' >&2\n`);
  chmodSync(path, 0o755);
}

test('parseVersion reads versions as the tools print them', () => {
  expect(parseVersion('openjdk version "17.0.15" 2025-04-15')).toEqual([17, 0]);
  expect(parseVersion('openjdk version "21" 2023-09-19')).toEqual([21, 0]);
  expect(parseVersion('java version "1.8.0_402"')).toEqual([1, 8]);
  expect(parseVersion('\u001b[1mApache Maven 3.8.7\u001b[m')).toEqual([3, 8]);
  expect(parseVersion('go version go1.26.8 linux/amd64')).toEqual([1, 26]);
  expect(parseVersion('etcd Version: 3.7.3')).toEqual([3, 7]);
  expect(parseVersion('no such thing')).toBeUndefined();
});

test('isAtLeast compares versions by number: 1.9 is older than 1.21, and 2.0 is not', () => {
  expect(isAtLeast([1, 9], [1, 21])).toBe(false);
  expect(isAtLeast([1, 21], [1, 21])).toBe(true);
  expect(isAtLeast([2, 0], [1, 21])).toBe(true);
});

test('which finds only executable files', () => {
  writeFileSync(join(dir, 'plain'), '');
  program('tool', 'x');
  const env = { PATH: `:/nowhere:${dir}` };
  expect(which('tool', env)).toBe(join(dir, 'tool'));
  expect(which('plain', env)).toBeUndefined();
  expect(which('absent', env)).toBeUndefined();
});

test('requireTools names all tools that are missing or too old in one error, with one command to install them', () => {
  program('java', 'openjdk version "11.0.2"');
  const check = () => requireTools(['java', 'mvn', 'go'], { PATH: dir });
  expect(check).toThrow(/java is only 11\.0[\s\S]*mvn is missing[\s\S]*go is missing[\s\S]*install[^\n]* maven /);
});

test('requireTools accepts tools that are recent enough', () => {
  program('java', 'openjdk version "17.0.1"');
  program('mvn', 'Apache Maven 3.9.0');
  expect(() => requireTools(['java', 'mvn', 'java'], { PATH: dir })).not.toThrow();
});

test.for(['java', 'mvn', 'go'] as const)('on a PATH that lacks only %s, only that is missing', (lacking) => {
  const says = { java: 'openjdk version "17.0.1"', mvn: 'Apache Maven 3.9.0', go: 'go version go1.19.8 linux/amd64' };
  for (const [name, text] of Object.entries(says)) if (name !== lacking) program(name, text);
  const faults = toolFaults(['java', 'mvn', 'go'], { PATH: dir });
  expect(faults.map(({ text }) => text)).toEqual([expect.stringMatching(`^${lacking} is missing`)]);
});

test('IDALLOC_NO_INSTALL=1 prevents the installation, and the error says so and how to install', async () => {
  const env = { PATH: dir, IDALLOC_NO_INSTALL: '1' };
  const attempt = ensureTools(['go'], { env, log: () => undefined });
  await expect(attempt).rejects.toThrow(/go is missing[\s\S]*IDALLOC_NO_INSTALL=1 forbids it[\s\S]*Install with: /);
});

test.runIf(existsSync('/etc/debian_version') && process.getuid?.() === 0)(
  'as root, missing tools are asked from apt-get: java by a pattern of versions, and the rest by name',
  async () => {
    program('java', 'openjdk version "11.0.2"');
    writeFileSync(
      join(dir, 'apt-cache'),
      '#!/bin/sh\necho "openjdk-21-jre-headless - x\nopenjdk-17-jre-headless - y"\n',
    );
    writeFileSync(join(dir, 'apt-get'), `#!/bin/sh\necho "$@" >>${dir}/calls\n`);
    for (const name of ['apt-cache', 'apt-get']) chmodSync(join(dir, name), 0o755);
    const attempt = ensureTools(['java', 'go'], { env: { PATH: dir }, log: () => undefined });
    await expect(attempt).rejects.toThrow('others come first on the PATH');
    const calls = readFileSync(join(dir, 'calls'), 'utf8').trim().split('\n');
    expect(calls).toHaveLength(3);
    expect(calls[0]).toMatch(/ update$/);
    expect(calls[1]).toMatch(/ --no-install-recommends openjdk-17-jre-headless golang-go --download-only$/);
    expect(calls[2]).toMatch(/ --no-install-recommends openjdk-17-jre-headless golang-go$/);
  },
);

test('.nvmrc names the Node that the lockfile pins', () => {
  const root = join(import.meta.dirname, '../..');
  const { version, optionalDependencies } = JSON.parse(readFileSync(join(root, 'ops/node/package.json'), 'utf8'));
  expect(readFileSync(join(root, '.nvmrc'), 'utf8').trim()).toBe(version);
  expect(new Set(Object.values(optionalDependencies))).toEqual(new Set([version]));
});
