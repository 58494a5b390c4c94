import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { ROOT } from '../../ops/dev/paths.ts';
import { readManifest } from '../../ops/release/packages.ts';

const FOLDER = join(ROOT, '.github/workflows');
const read = (file: string) => readFileSync(join(FOLDER, file), 'utf8');

describe.for(readdirSync(FOLDER))('the workflow %s', (file) => {
  test('pins each action by its commit, and says which version that is', () => {
    const uses = read(file).match(/uses: .*/g) ?? [];
    expect(uses.length).toBeGreaterThan(0);
    expect(uses.filter((line) => !/^uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(line))).toEqual([]);
  });

  test('may only read unless a job says what else it may', () => {
    expect(parse(read(file)).permissions).toEqual({ contents: 'read' });
  });

  test('names no registry: its variables do', () => {
    expect(read(file)).not.toMatch(/ghcr\.io|docker\.io|npmjs|quay\.io/);
  });
});

test('two workflows use the same commit of an action', () => {
  const pins = new Map<string, Set<string>>();
  for (const [, action = '', commit = ''] of readdirSync(FOLDER)
    .map(read)
    .join()
    .matchAll(/uses: ([^@]+)@(\w+)/g)) {
    pins.set(action, (pins.get(action) ?? new Set()).add(commit));
  }
  expect([...pins].filter(([, commits]) => commits.size > 1)).toEqual([]);
});

test('a release is published only from its tag, and a run by hand publishes only if it is told to', () => {
  const { on, jobs } = parse(read('release.yml'));
  expect(on.workflow_dispatch.inputs.publish.default).toBe(false);
  expect(jobs.publish.if).toBe("github.ref_type == 'tag' && (github.event_name == 'push' || inputs.publish)");
});

test('between releases the version ends in -dev and the changelog is open, and at a release neither is', () => {
  const { version } = readManifest();
  const isOpen = /^## Unreleased$/m.test(readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8'));
  expect(version.endsWith('-dev')).toBe(isOpen);
});
