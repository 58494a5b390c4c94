import { expect, test } from 'vitest';
import { isInstalled } from '../../ops/dev/install-state.mjs';

type Packages = Record<string, Record<string, unknown>>;
const text = (packages: Packages) => JSON.stringify({ lockfileVersion: 3, packages });

const A = { version: '1.0.0', integrity: 'sha512-a' };
const OTHER_PLATFORM = { version: '2.0.0', integrity: 'sha512-b', optional: true };
const WANTED = { '': { name: 'root' }, 'node_modules/a': A, 'node_modules/b': OTHER_PLATFORM };

test('nothing is installed when npm left no record', () => {
  expect(isInstalled(text(WANTED), undefined)).toBe(false);
});

test('an installation of all that is not optional fits, whatever else npm notes about a package', () => {
  expect(isInstalled(text(WANTED), text({ 'node_modules/a': { ...A, resolved: 'somewhere', dev: true } }))).toBe(true);
  expect(isInstalled(text(WANTED), text({ 'node_modules/a': A, 'node_modules/b': OTHER_PLATFORM }))).toBe(true);
});

test('a version, a content, or a package that the lockfile changed does not fit', () => {
  for (const a of [{ ...A, version: '1.0.1' }, { ...A, integrity: 'sha512-c' }, { version: '1.0.0' }]) {
    expect(isInstalled(text(WANTED), text({ 'node_modules/a': a }))).toBe(false);
  }
});

test('a package too few or too many does not fit', () => {
  expect(isInstalled(text(WANTED), text({}))).toBe(false);
  expect(isInstalled(text(WANTED), text({ 'node_modules/a': A, 'node_modules/c': A }))).toBe(false);
});

test('an unreadable record does not fit', () => {
  expect(isInstalled(text(WANTED), '{"packages":')).toBe(false);
});
