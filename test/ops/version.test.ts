import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { notesOf } from '../../ops/release/release.ts';
import { FILES, obstacleTo, withVersion } from '../../ops/release/version.ts';

const readFile = (file: string) => readFileSync(join(ROOT, file), 'utf8');
const CHANGES = '# Changelog\n\n## Unreleased\n\n- New.\n\n## 1.0.0 - 2026-01-01\n\n- Old.\n';

/** The files of this checkout, with this changelog. */
const reading = (changelog: string) => (file: string) => (file === 'CHANGELOG.md' ? changelog : readFile(file));

describe('a version that is set', () => {
  test('is in every file that names it, in place of the one before, and nothing else changes', () => {
    const texts = withVersion(reading(CHANGES), '98.7.6', '2026-02-01');
    const linesOf = (text: string) => text.split('\n').filter((line) => line.includes('98.7.6'));
    expect(Object.entries(texts).map(([file, text]) => [file, linesOf(text).length])).toEqual([
      ['package.json', 1],
      ['package-lock.json', 2],
      ['docs/reference/asyncapi.yaml', 1],
      ['ops/helm/idalloc/Chart.yaml', 2],
      ['CHANGELOG.md', 1],
    ]);
    const rest = (text: string) => text.split('\n').filter((line) => !/^\s*"?(appV|v)ersion"?: /.test(line));
    for (const file of FILES.slice(0, -1)) expect(rest(texts[file] ?? '')).toEqual(rest(readFile(file)));
  });

  test('of a release turns what was collected into its notes, with the date', () => {
    const { 'CHANGELOG.md': changelog = '' } = withVersion(reading(CHANGES), '1.1.0', '2026-02-01');
    expect(changelog).toBe(CHANGES.replace('## Unreleased', '## 1.1.0 - 2026-02-01'));
    expect(notesOf(changelog, '1.1.0')).toBe('- New.\n');
  });

  test('of what comes after a release begins "Unreleased" once', () => {
    const released = CHANGES.replace('## Unreleased', '## 1.1.0 - 2026-02-01');
    const { 'CHANGELOG.md': begun = '' } = withVersion(reading(released), '1.2.0-dev', '2026-02-01');
    expect(begun).toBe(released.replace('## 1.1.0', '## Unreleased\n\n## 1.1.0'));
    expect(withVersion(reading(begun), '1.3.0-dev', '2026-02-01')['CHANGELOG.md']).toBe(begun);
  });

  test.for([CHANGES.replace('## Unreleased', '## 1.0.1 - 2026-01-02'), CHANGES.replace('- New.\n\n', '')])(
    'is refused for a release without notes: %j',
    (changelog) => {
      expect(() => withVersion(reading(changelog), '1.1.0', '2026-02-01')).toThrow('nothing under "Unreleased"');
    },
  );

  test('is refused where a file does not name one', () => {
    const without = (file: string) => reading(CHANGES)(file).replace(/^appVersion: /m, 'appVersions: ');
    expect(() => withVersion(without, '1.1.0', '2026-02-01')).toThrow('ops/helm/idalloc/Chart.yaml does not name');
  });
});

test.for([
  ['1.2.3', '1.2.3-dev', undefined],
  ['1.3.0-dev', '1.2.3', undefined],
  ['1.10.0', '1.9.9', undefined],
  ['1.2.3', '1.2.3', 'is not above'],
  ['1.2.3-dev', '1.2.3', 'is not above'],
  ['1.1.9', '1.2.0-dev', 'is not above'],
  ['v1.2.3', '1.2.2', 'is no version'],
  ['1.2', '1.1.0', 'is no version'],
  ['', '1.1.0', 'is no version'],
] as const)('%s after %s: %s', ([version, present, why]) => {
  if (why === undefined) expect(obstacleTo(version, present)).toBeUndefined();
  else expect(obstacleTo(version, present)).toContain(why);
});
