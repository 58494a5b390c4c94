import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { isAtLeast, parseVersion, requireTools, which } from '../../ops/dev/toolchain.ts';

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

test('.nvmrc names the Node that the lockfile pins', () => {
  const root = join(import.meta.dirname, '../..');
  const { version, optionalDependencies } = JSON.parse(readFileSync(join(root, 'ops/node/package.json'), 'utf8'));
  expect(readFileSync(join(root, '.nvmrc'), 'utf8').trim()).toBe(version);
  expect(new Set(Object.values(optionalDependencies))).toEqual(new Set([version]));
});
