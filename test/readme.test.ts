import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { cli } from './cli/harness.ts';
import { blockCommands, ELSEWHERE, inlineCode, misfit, readReadme } from './support/readme.ts';

const ROOT = new URL('..', import.meta.url);
const README = readReadme();

/** The commands that --help lists, each with those above it. Those that only hold others together have no examples. */
async function existing(path: readonly string[] = []): Promise<string[]> {
  const { out } = await cli([...path, '--help']);
  const [, list = ''] = /\nCommands:\n((?: {2}.*\n)+)/.exec(out) ?? [];
  const names = [...list.matchAll(/^ {2}(\w+)/gm)].map(([, name = '']) => name).filter((name) => name !== 'help');
  const below = await Promise.all(names.map((name) => existing([...path, name])));
  return [...(out.includes('Examples:') ? [path.join(' ')] : []), ...below.flat()];
}

/** The arguments of every mention of the command line in README. */
function mentioned(): string[] {
  const all = [...blockCommands(README).map(({ command }) => command), ...inlineCode(README)];
  return all.flatMap((text) => /^(?:npm run idalloc -- |idalloc )(?!ready$)(.+)$/.exec(text)?.[1] ?? []);
}

const startsWith = (text: string, path: string): boolean => `${text} `.startsWith(`${path} `);

describe('README and the command line', () => {
  test('README has every command, with a call of it', async () => {
    const commands = await existing();
    expect(commands).toContain('namespace rebuild');
    expect(commands.filter((path) => !mentioned().some((call) => startsWith(call, path)))).toEqual([]);
  });

  test('every command in README exists', async () => {
    const commands = await existing();
    expect(mentioned().length).toBeGreaterThan(20);
    expect(mentioned().filter((call) => !commands.some((path) => startsWith(call, path)))).toEqual([]);
  });

  test('every other program that README tells to run is tried somewhere that exists', () => {
    const programs = /^(npm (?!run idalloc)|npx |docker |pip |python |mvn |java |go |node |\.\/\S+\.sh)/;
    const told = [...blockCommands(README).map(({ command }) => command), ...inlineCode(README)];
    const others = new Set(told.filter((text) => programs.test(text)));
    expect([...others].sort()).toEqual([...ELSEWHERE.keys()].sort());
    const { scripts } = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8'));
    const called = [...others].flatMap((text) => /^npm run (\S+)/.exec(text)?.[1] ?? []);
    expect(called.filter((name) => scripts[name] === undefined)).toEqual([]);
    expect([...ELSEWHERE.values()].filter((path) => !existsSync(new URL(path, ROOT)))).toEqual([]);
  });
});

describe('the reader of README', () => {
  const markdown = [
    'Text with `npm\nstart`.',
    '```sh',
    'export A=1   # a comment',
    '# only a comment',
    'idalloc worker',
    '```',
    '```js',
    'code();',
    '```',
    '```console',
    'what the code printed',
    '```',
    '```console',
    '$ one',
    'a',
    'b',
    '$ two',
    '```',
  ].join('\n');

  test('has commands in their order, with line and output', () => {
    expect(blockCommands(markdown)).toEqual([
      { line: 4, command: 'export A=1', output: undefined },
      { line: 6, command: 'idalloc worker', output: undefined },
      { line: 15, command: 'one', output: ['a', 'b'] },
      { line: 18, command: 'two', output: [] },
    ]);
  });

  test('has code in the text on one line, and nothing out of blocks', () => {
    expect(inlineCode(markdown)).toEqual(['npm start']);
  });

  test('refuses output without a command', () => {
    expect(() => blockCommands('```console\nx\n```')).toThrow(/line 2/);
  });

  test.each([
    ['another time, ID and place', ['7 at 2026-06-02T16:05:00.000Z, 0:3'], ['55325 at 2027-01-01T00:00:00.001Z, 1:17']],
    ['an ID that is 0', ['worker ID 25 was'], ['worker ID 0 was']],
    ['other hosts', ['on http://etcd-1.lan:2379'], ['on http://127.0.0.1:4001']],
    ['more lines in the place of …', ['a', '…', 'b'], ['a', 'x', 'y', 'b']],
    ['no lines in the place of …', ['a', '…', 'b'], ['a', 'b']],
    ['other text in the place of … within a line', ['{"ids":[…],"x":1}'], ['{"ids":[1,2],"x":7}']],
    ['another width', ['a    b'], ['a  b']],
  ])('takes %s for the same', (_, shown, real) => {
    expect(misfit(shown, real)).toBeUndefined();
  });

  test.each([
    ['another word', ['2 replies'], ['2 answers']],
    ['a line too many', ['a'], ['a', 'b']],
    ['a line too few', ['a', 'b'], ['a']],
    ['something where README has nothing', ['0 losers'], ['3 losers']],
    ['nothing where README has something', ['3 replies'], ['0 replies']],
    ['text that only begins the same', ['a'], ['ab']],
  ])('tells %s', (_, shown, real) => {
    expect(misfit(shown, real)).toContain('README shows');
  });

  test('tells each byte where nothing may differ', () => {
    expect(misfit(['a  1'], ['a  1'], true)).toBeUndefined();
    expect(misfit(['a  1'], ['a  2'], true)).toBeDefined();
    expect(misfit(['a  1'], ['a 1'], true)).toBeDefined();
  });
});
