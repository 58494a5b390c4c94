import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { VARIABLES } from '../../src/config/variables.ts';
import { cli } from '../cli/harness.ts';
import { blockCommands, inlineCode, PAGES, ROOT, readPage } from '../support/docs.ts';
import {
  ELSEWHERE,
  FOLLOWED,
  FOLLOWED_APART,
  HELP_ONLY,
  PASTED,
  TRIED_BY,
  UNTESTED,
} from '../support/shown-commands.ts';

interface Mention {
  readonly page: string;
  readonly command: string;
}

/** Describes earlier releases, so its commands need not work now. */
const HISTORY = 'CHANGELOG.md';
const PROGRAMS =
  /^(npm (?!run idalloc)|npx |docker |pip |python |mvn |java |go |node |echo .* > form\.key|\.\/\S+\.sh|IDALLOC_\w+=\S+ npm )/;

const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');

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

/** The commands below a path that --help lists. A command that only groups others has no examples, and is left out. */
async function known(path: readonly string[] = []): Promise<Known[]> {
  const { out } = await cli([...path, '--help']);
  const [, list = ''] = /\nCommands:\n((?: {2}.*\n)+)/.exec(out) ?? [];
  const names = [...list.matchAll(/^ {2}([\w-]+)/gm)].map(([, name = '']) => name).filter((name) => name !== 'help');
  const below = await Promise.all(names.map((name) => known([...path, name])));
  const options = new Set([...out.matchAll(/--[a-z][a-z-]*/g)].map(([option]) => option));
  return [...(out.includes('Examples:') ? [{ path: path.join(' '), options }] : []), ...below.flat()];
}

const COMMANDS = await known();
/** The commands that no test takes from a page. */
const LISTED = [...ELSEWHERE.keys(), ...HELP_ONLY, ...UNTESTED.keys()];

/**
 * The arguments of every mention of a command; `idalloc <family>` alone names a family. `idalloc form …` is a label of
 * keys.
 */
const CALLS = MENTIONED.flatMap(({ page, command }) => {
  const [, args] = /^(?:bin\/)?idalloc (?!ready\b|form )(.+)$/.exec(command) ?? [];
  return args === undefined ? [] : [{ page, args }];
});

/** What a page tells those who have a checkout, once. */
const IN_CHECKOUT = 'In a checkout, `idalloc` is `bin/idalloc`.';
/** Pages that only mention a command, and that nobody works through. */
const IN_PASSING = new Set(['docs/glossary.md', 'docs/internals/reach-by-time.md']);
const isCall = (command: string) => /^idalloc (?!ready\b|form )/.test(command);

/** The command of a call, or one of the family if only that is named; the longest match counts. */
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

  test('each is run by the docs tests, has an entry in ELSEWHERE, or is listed in HELP_ONLY or UNTESTED', () => {
    const followed = (page: string) => FOLLOWED.includes(page) || FOLLOWED_APART.has(page) || TRIED_BY.has(page);
    const listed = (command: string) => LISTED.includes(command);
    expect(SHOWN.filter(({ page, command }) => !listed(command) && !followed(page))).toEqual([]);
  });

  test('a page that has its own test is named in that test', () => {
    const unnamed = [...FOLLOWED_APART].filter(([page, file]) => !read(file).includes(page.replace('docs/', '')));
    expect(unnamed).toEqual([]);
  });

  test('ELSEWHERE, HELP_ONLY and UNTESTED have every command of other programs that a page shows, and no others', () => {
    const asPrinted = new Set(SHOWN.filter(({ page }) => FOLLOWED_APART.get(page) === PASTED));
    const others = new Set(
      MENTIONED.filter((mention) => !asPrinted.has(mention))
        .map(({ command }) => command)
        .filter((command) => PROGRAMS.test(command)),
    );
    expect([...others].sort()).toEqual(LISTED.toSorted());
  });

  test.for([...ELSEWHERE])('%s is run by the file that ELSEWHERE names', ([, { file, by }]) => {
    expect(read(file)).toContain(by);
  });

  test('npm has each script that is listed, and the files of the others exist', () => {
    const { scripts } = JSON.parse(read('package.json'));
    const called = LISTED.flatMap((text) => /^npm run (\S+)/.exec(text)?.[1] ?? []);
    expect(called.filter((name) => scripts[name] === undefined)).toEqual([]);
    expect([...TRIED_BY.values()].filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });

  test('a page with calls of idalloc says before the first of them what to write in a checkout', () => {
    const withCalls = READ.filter((page) => MENTIONED.some((one) => one.page === page && isCall(one.command)));
    const users = withCalls.filter((page) => !IN_PASSING.has(page));
    expect(users.length).toBeGreaterThan(10);
    const told = (page: string) => readPage(page).split(IN_CHECKOUT);
    expect(users.filter((page) => told(page).length !== 2)).toEqual([]);
    const late = users.filter((page) => blockCommands(told(page)[0] ?? '').some(({ command }) => isCall(command)));
    expect(late).toEqual([]);
  });

  test('package.json runs everything by the bootstrap, which installs what is missing and runs the pinned Node', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Readonly<Record<string, string>> };
    const parts = Object.entries(scripts).flatMap(([name, script]) =>
      script.split(' && ').map((part) => ({ name, part })),
    );
    const others = parts.filter(({ part }) => !/^(node ops\/dev\/bootstrap\.mjs|npm run) /.test(part));
    // The image has installed everything, and has no bootstrap.
    expect(others.map(({ name }) => name)).toEqual(['build']);
  });

  test('each variable that a page exports exists', () => {
    const names = SHOWN.filter(({ command }) => command.startsWith('export ')).flatMap(({ page, command }) =>
      [...command.matchAll(/\b([A-Z][A-Z0-9_]+)=/g)].map(([, name = '']) => ({ page, name })),
    );
    expect(names.length).toBeGreaterThan(10);
    expect(names.filter(({ name }) => !(name.replace(/_FILE$/, '') in VARIABLES))).toEqual([]);
  });
});
