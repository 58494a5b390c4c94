import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { instanceIdIn } from '../../../src/adapters/index/instance-id.ts';

const [FIRST, SECOND] = ['11111111-1111-4111-8111-111111111111', '22222222-2222-4222-8222-222222222222'];

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'idalloc-instance-'));
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

test('a worker keeps its name in its directory, and nothing else there', () => {
  expect([instanceIdIn(directory, () => FIRST), instanceIdIn(directory, () => SECOND)]).toEqual([FIRST, FIRST]);
  expect(readdirSync(directory)).toEqual(['instance-id']);
});

test.each(['', 'no UUID', `${FIRST} and more`])('a name that is damaged, such as "%s", is replaced', (text) => {
  writeFileSync(join(directory, 'instance-id'), text);
  expect([instanceIdIn(directory, () => SECOND), instanceIdIn(directory, () => FIRST)]).toEqual([SECOND, SECOND]);
});

test.each(['instance-id', 'instance-id.new'])(
  'a name that can not be read or written, as %s is a folder, is INDEX_UNUSABLE with its path',
  (name) => {
    mkdirSync(join(directory, name));
    const message = expect.stringMatching(/instance-id can't be read or written: check INDEX_DIR/);
    expect(() => instanceIdIn(directory, () => FIRST)).toThrow(
      expect.objectContaining({ code: 'INDEX_UNUSABLE', message }),
    );
  },
);
