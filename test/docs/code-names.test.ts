import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOMS as ROWS } from '../../ops/lint/arrows.ts';
import { blocksOf, inlineCode, PAGES, ROOT, readPage } from '../support/docs.ts';

/** Pages for readers of the code: what they name must not go out of date when it is renamed. */
const INTERNAL = PAGES.filter((page) => page === 'ARCHITECTURE.md' || page.startsWith('docs/internals/'));
/** The rooms that are folders, and those around them, such as adapters. */
const ROOMS = [...new Set(ROWS.filter(({ room }) => !room.endsWith('.ts')).map(({ room }) => room.split('/')[0]))].join(
  '|',
);
const SOURCES = globSync('{src,test,ops}/**/*.ts', { cwd: ROOT }).map((path) => readFileSync(join(ROOT, path), 'utf8'));

/** Whether a path of the pages, below src or in test, is a file or a folder. */
function exists(path: string): boolean {
  const places = path.startsWith('test/') ? [path] : [`src/${path}`];
  return places.some((place) =>
    [place, `${place}.ts`, `${place}.test.ts`].some((name) => existsSync(join(ROOT, name))),
  );
}

function namesIn(page: string): string[] {
  const drawings = blocksOf(readPage(page)).filter(({ language }) => language === '');
  const drawn = drawings.flatMap(({ body }) => body.join('\n').match(new RegExp(`\\b(${ROOMS})/[\\w/-]+`, 'g')) ?? []);
  return [...inlineCode(readPage(page)), ...drawn];
}

test.for(INTERNAL)('the files that %s names exist', (page) => {
  const paths = namesIn(page).filter((name) => new RegExp(`^(${ROOMS}|test)/[\\w/-]+$`).test(name));
  expect(paths.filter((path) => !exists(path))).toEqual([]);
});

test.for(INTERNAL)('the functions and fields that %s names are in the code', (page) => {
  const names = namesIn(page).filter((name) => /^[a-z]+([A-Z][a-z]+)+$/.test(name));
  expect(names.filter((name) => !SOURCES.some((text) => new RegExp(`\\b${name}\\b`).test(text)))).toEqual([]);
});

/** The models have the words of what they model. */
const OTHER_WORDS = ['test/model/**', '**/node_modules/**'];

test('each type that the glossary names for a word of the code is declared in one place, whoever uses it', () => {
  const [, section = ''] = readPage('docs/glossary.md').split('\n## In the code\n');
  const names = [...section.matchAll(/\(`(\w+)`\)/g)].map(([, name = '']) => name);
  const declared = new RegExp(`^(?:export )?(?:const|class|function\\*?|interface|type) (${names.join('|')})\\b`, 'gm');
  const found = globSync('{src,test,ops}/**/*.ts', { cwd: ROOT, exclude: OTHER_WORDS }).flatMap((path) =>
    [...readFileSync(join(ROOT, path), 'utf8').matchAll(declared)].map(([, name]) => name),
  );
  expect(names.length).toBeGreaterThan(5);
  expect(found.toSorted()).toEqual(names.toSorted());
});

test('the table of rooms in ARCHITECTURE.md has the budget of each', () => {
  const rows = readPage('ARCHITECTURE.md').matchAll(/^\| (?<names>`src\/.*?) \|.*\| (?<lines>[\d,]+|–) \|$/gm);
  const table = [...rows].map(({ groups }) => ({
    rooms: [...String(groups?.names).matchAll(/`src\/(?<room>[^`*]+?)(?:\/\*)?`/g)].map((one) =>
      String(one.groups?.room),
    ),
    lines: Number(groups?.lines?.replace(/[,–]/g, '')),
  }));
  const named = table.flatMap(({ rooms }) => rooms);
  /** Of a room and those in it without a row of their own. */
  const budgetOf = (name: string): number => {
    const isInside = ({ room }: (typeof ROWS)[number]) =>
      room === name || (room.startsWith(`${name}/`) && !named.includes(room));
    return ROWS.filter(isInside).reduce((sum, { lines = 0 }) => sum + lines, 0);
  };
  expect(table.length).toBeGreaterThan(15);
  for (const { rooms, lines } of table)
    expect.soft(lines, rooms.join()).toBe(rooms.reduce((sum, room) => sum + budgetOf(room), 0));
  const budget = ROWS.reduce((sum, { lines = 0 }) => sum + lines, 0);
  expect(table.reduce((sum, { lines }) => sum + lines, 0)).toBe(budget);
});
