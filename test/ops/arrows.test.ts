import { expect, test } from 'vitest';
import { doubled, oversized, ROOMS, wideComments } from '../../ops/lint/arrows.ts';

const files = (count: number, lines: number, room: string) =>
  new Map(Array.from({ length: count }, (_, i) => [`${room}/file${i}.ts`, lines] as const));

test('a room above its budget of lines is reported, with the sum of its files', () => {
  const budget = ROOMS.find(({ room }) => room === 'async')?.lines ?? 0;
  expect(oversized(files(2, budget / 2, 'async'))).toEqual([]);
  const report = new RegExp(`^src/async has ${budget + 2} lines, above its budget of ${budget}: `);
  expect(oversized(files(2, budget / 2 + 1, 'async'))).toEqual([expect.stringMatching(report)]);
});

test('a file of more than 500 lines is reported, apart from tables and what is generated', () => {
  expect(oversized(files(1, 500, 'cli'))).toEqual([]);
  expect(oversized(files(1, 501, 'cli'))).toEqual([expect.stringMatching(/^src\/cli\/file0\.ts has 501 lines/)]);
  expect(oversized(new Map([['config/variables.ts', 600]]))).toEqual([]);
});

test('a name that two files export is reported, but not one that a file passes on', () => {
  const passedOn = "export { keyOf } from './a.ts';\nexport type { Key } from './a.ts';\n";
  expect(
    doubled(
      new Map([
        ['a.ts', 'export function keyOf() {}\n'],
        ['index.ts', passedOn],
      ]),
    ),
  ).toEqual([]);
  const texts = new Map([
    ['a.ts', 'export function keyOf() {}\n'],
    ['b.ts', 'export const keyOf = 1;\n'],
  ]);
  expect(doubled(texts)).toEqual(['keyOf is exported by src/a.ts and src/b.ts: rename one by what it is']);
});

test('a type of a file is reported whose name another file exports for something else', () => {
  const exporting = (name: string) => ['a.ts', `export interface ${name} {}\n`] as const;
  const own = ['b.ts', 'type Key = string;\n'] as const;
  expect(doubled(new Map([exporting('Lock'), own]))).toEqual([]);
  expect(doubled(new Map([exporting('Key'), own]))).toEqual([
    'Key is exported by src/a.ts, and another type of src/b.ts: rename one by what it is',
  ]);
});

test('each folder of the source has a budget', () => {
  expect(ROOMS.filter(({ room, lines }) => !room.endsWith('.ts') && lines === undefined)).toEqual([]);
});

test('a comment of more than 120 columns is reported with its line, and code of any width is not', () => {
  const wide = (columns: number) => `// ${'x'.repeat(columns - 3)}`;
  expect(wideComments(`${wide(120)}\nconst a = '${'x'.repeat(120)}';\n`)).toEqual([]);
  expect(wideComments(`const a = 1;\n${wide(121)}\n ${wide(120)}\n`)).toEqual([2, 3]);
  expect(wideComments(`/**\n * ${'x'.repeat(118)}\n */\n`)).toEqual([2]);
});
