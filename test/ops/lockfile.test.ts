import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

interface Locked {
  readonly link?: boolean;
  readonly integrity?: string;
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly libc?: readonly string[];
}

const LOCKFILE = new URL('../../package-lock.json', import.meta.url);
const { packages } = JSON.parse(readFileSync(LOCKFILE, 'utf8')) as { packages: Readonly<Record<string, Locked>> };
const unverified = Object.entries(packages).filter(
  ([path, { link, integrity }]) => path.includes('node_modules/') && link !== true && integrity === undefined,
);

/** Whether npm installs a package on Linux with glibc, on x64 or arm64. */
function isForLinux({ os = ['linux'], cpu = ['x64'], libc = ['glibc'] }: Locked): boolean {
  return os.includes('linux') && (cpu.includes('x64') || cpu.includes('arm64')) && libc.includes('glibc');
}

const namesOf = (found: typeof unverified) => found.map(([path]) => path);

test('every package that is shipped has a checksum in the lockfile', () => {
  expect(namesOf(unverified.filter(([, { dev }]) => dev !== true))).toEqual([]);
});

test('every package that Linux on x64 and arm64 installs has a checksum in the lockfile', () => {
  expect(namesOf(unverified.filter(([, locked]) => isForLinux(locked)))).toEqual([]);
});

test('the packages without a checksum are the optional ones that docs/security.md names', () => {
  const security = readFileSync(new URL('../../docs/security.md', import.meta.url), 'utf8');
  expect(security).toMatch(new RegExp(`\\b${unverified.length} optional packages\\b`));
  for (const [path, { optional }] of unverified) {
    expect(path).toMatch(/^node_modules\/(@biomejs\/cli|@oxc-parser\/binding)-/);
    expect(optional).toBe(true);
  }
});
