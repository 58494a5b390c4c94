import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { VARIABLES } from '../../src/config/variables.ts';
import { cli } from '../cli/harness.ts';
import { blockCommands, inlineCode, PAGES, ROOT, readPage } from '../support/docs.ts';
import { ELSEWHERE, FOLLOWED, FOLLOWED_APART, TRIED_BY } from '../support/shown-commands.ts';

interface Mention {
  readonly page: string;
  readonly command: string;
}

/** What was once true, and is not a page to follow. */
const HISTORY = 'CHANGELOG.md';
const PROGRAMS =
  /^(npm (?!run idalloc)|npx |docker |pip |python |mvn |java |go |node |echo .* > form\.key|\.\/\S+\.sh|IDALLOC_\w+=\S+ npm )/;

const READ = PAGES.filter((page) => page !== HISTORY);
const SHOWN: readonly Mention[] = READ.flatMap((page) =>
  blockCommands(readPage(page)).map(({ command }) => ({ page, command })),
);
const MENTIONED: readonly Mention[] = [
  ...SHOWN,
  ...READ.flatMap((page) => inlineCode(readPage(page)).map((command) => ({ page, command }))),
];

/** A command of idalloc and the options that its help has. */
interface Known {
  readonly path: string;
  readonly options: ReadonlySet<string>;
}

/** The commands that --help lists, each with those above it. Those that only hold others together have no examples. */
async function known(path: readonly string[] = []): Promise<Known[]> {
  const { out } = await cli([...path, '--help']);
  const [, list = ''] = /\nCommands:\n((?: {2}.*\n)+)/.exec(out) ?? [];
  const names = [...list.matchAll(/^ {2}(\w+)/gm)].map(([, name = '']) => name).filter((name) => name !== 'help');
  const below = await Promise.all(names.map((name) => known([...path, name])));
  const options = new Set([...out.matchAll(/--[a-z][a-z-]*/g)].map(([option]) => option));
  return [...(out.includes('Examples:') ? [{ path: path.join(' '), options }] : []), ...below.flat()];
}

const COMMANDS = await known();

/** The arguments of every mention of the command line; `idalloc <family>` alone names a family of commands. `idalloc form …` is a label of keys. */
const CALLS = MENTIONED.flatMap(({ page, command }) => {
  const [, args] = /^(?:npm run idalloc -- |idalloc )(?!ready\b|form )(.+)$/.exec(command) ?? [];
  return args === undefined ? [] : [{ page, args }];
});

/** The command of a call, or one of the family where only that is named; the longest path is the nearest. */
const commandOf = (args: string): Known | undefined =>
  COMMANDS.toSorted((one, other) => other.path.length - one.path.length).find(
    ({ path }) => `${args} `.startsWith(`${path} `) || `${path} `.startsWith(`${args} `),
  );

describe('the commands in the pages', () => {
  test('each command of idalloc is shown with a call of it', () => {
    expect(COMMANDS.map(({ path }) => path)).toContain('namespace rebuild');
    expect(COMMANDS.filter(({ path }) => !CALLS.some(({ args }) => `${args} `.startsWith(`${path} `)))).toEqual([]);
  });

  test('each call of idalloc is of a command that exists, with options that it has', () => {
    expect(CALLS.length).toBeGreaterThan(50);
    const wrong = CALLS.filter(({ args }) => {
      const options = [...args.matchAll(/(?<= )--[a-z][a-z-]*/g)].map(([option]) => option);
      const command = commandOf(args);
      return command === undefined || options.some((option) => !command.options.has(option));
    });
    expect(wrong).toEqual([]);
  });

  test('each is followed by a test, or has one elsewhere', () => {
    const followed = (page: string) => FOLLOWED.includes(page) || FOLLOWED_APART.has(page) || TRIED_BY.has(page);
    const untried = SHOWN.filter(({ page, command }) => !ELSEWHERE.has(command) && !followed(page));
    expect(untried).toEqual([]);
  });

  test('a page that a test of its own follows is named in it', () => {
    const unnamed = [...FOLLOWED_APART].filter(
      ([page, file]) => !readFileSync(join(ROOT, file), 'utf8').includes(page.replace('docs/', '')),
    );
    expect(unnamed).toEqual([]);
  });

  test('each other program that a page says to run is tried somewhere that exists', () => {
    const others = new Set(MENTIONED.map(({ command }) => command).filter((command) => PROGRAMS.test(command)));
    expect([...others].sort()).toEqual([...ELSEWHERE.keys()].sort());
    const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    const called = [...others].flatMap((text) => /^npm run (\S+)/.exec(text)?.[1] ?? []);
    expect(called.filter((name) => scripts[name] === undefined)).toEqual([]);
    const tests = [...ELSEWHERE.values(), ...TRIED_BY.values()];
    expect(tests.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });

  test('each variable that a page exports exists', () => {
    const names = SHOWN.filter(({ command }) => command.startsWith('export ')).flatMap(({ page, command }) =>
      [...command.matchAll(/\b([A-Z][A-Z0-9_]+)=/g)].map(([, name = '']) => ({ page, name })),
    );
    expect(names.length).toBeGreaterThan(10);
    expect(names.filter(({ name }) => !(name.replace(/_FILE$/, '') in VARIABLES))).toEqual([]);
  });
});
