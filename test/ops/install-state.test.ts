import { expect, test } from 'vitest';
import { isInstalled, packagePaths } from '../../ops/dev/install-state.mjs';

type Packages = Record<string, Record<string, unknown>>;
const text = (packages: Packages) => JSON.stringify({ lockfileVersion: 3, packages });

const A = { version: '1.0.0', integrity: 'sha512-a' };
const OTHER_PLATFORM = { version: '2.0.0', integrity: 'sha512-b', optional: true };
const WANTED = { '': { name: 'root' }, 'node_modules/a': A, 'node_modules/b': OTHER_PLATFORM };

test('isInstalled is false without a record of npm', () => {
  expect(isInstalled(text(WANTED), undefined)).toBe(false);
});

test('isInstalled is true if all packages but optional ones are installed, whatever else npm records about them', () => {
  expect(isInstalled(text(WANTED), text({ 'node_modules/a': { ...A, resolved: 'somewhere', dev: true } }))).toBe(true);
  expect(isInstalled(text(WANTED), text({ 'node_modules/a': A, 'node_modules/b': OTHER_PLATFORM }))).toBe(true);
});

test('isInstalled is false if the lockfile changed a version, a content or a package', () => {
  for (const a of [{ ...A, version: '1.0.1' }, { ...A, integrity: 'sha512-c' }, { version: '1.0.0' }]) {
    expect(isInstalled(text(WANTED), text({ 'node_modules/a': a }))).toBe(false);
  }
});

test('isInstalled is false if a package is missing or extra', () => {
  expect(isInstalled(text(WANTED), text({}))).toBe(false);
  expect(isInstalled(text(WANTED), text({ 'node_modules/a': A, 'node_modules/c': A }))).toBe(false);
});

test('isInstalled is false for an unreadable record', () => {
  expect(isInstalled(text(WANTED), '{"packages":')).toBe(false);
});

test('the packages that an installation waits for are those of every platform, without the root and links', () => {
  const linked = { 'node_modules/c': { link: true, resolved: 'ops/c' } };
  expect(packagePaths(text({ ...WANTED, ...linked }))).toEqual(['node_modules/a']);
});
