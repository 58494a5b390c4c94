import { expect, test } from 'vitest';
import type { CliContext } from '../../src/cli/context.ts';
import { confirm, logText, Progress, palette, terminalText } from '../../src/cli/terminal.ts';

const SOMEBODY = { input: true, output: true, errors: true };
const NOBODY = { input: false, output: false, errors: false };

function context(about: Partial<CliContext>): { context: CliContext; printed: () => string } {
  let printed = '';
  const partial = {
    env: {},
    terminal: SOMEBODY,
    stop: new AbortController().signal,
    err: (text: string) => {
      printed += text;
    },
    ask: async () => '',
    ...about,
  };
  return { context: partial as unknown as CliContext, printed: () => printed };
}

test.each([
  ['a terminal', SOMEBODY, {}, true],
  ['a pipe', NOBODY, {}, false],
  ['NO_COLOR', SOMEBODY, { NO_COLOR: '1' }, false],
  ['an empty NO_COLOR', SOMEBODY, { NO_COLOR: '' }, true],
  ['a dumb terminal', SOMEBODY, { TERM: 'dumb' }, false],
])('colours with %s: %#', (_, terminal, env, coloured) => {
  expect(palette({ terminal, env }).red('x') !== 'x').toBe(coloured);
});

test('styles take effect where they are ours, and nowhere else', () => {
  const { red } = palette({ terminal: SOMEBODY, env: {} });
  const foreign = Buffer.from('\u001b[8m\udc1f🙂').toString();
  expect(terminalText(red(foreign))).toBe('\u001b[31m\\u001b[8m\ufffd🙂\u001b[0m');
});

test('a question without a terminal needs --yes', async () => {
  const { context: alone } = context({ terminal: { ...SOMEBODY, input: false }, ask: async () => 'y' });
  await expect(confirm(alone, 'Sure?', false)).rejects.toMatchObject({ code: 'NOT_CONFIRMED' });
  await confirm(alone, 'Sure?', true);
});

test.each([
  ['y', true],
  [' Yes ', true],
  ['', false],
  ['n', false],
  ['yesterday', false],
])("takes the answer '%s' as yes only if it means yes", async (answer, meant) => {
  const asked = confirm(context({ ask: async () => answer }).context, 'Sure?', false);
  if (meant) await asked;
  else await expect(asked).rejects.toMatchObject({ code: 'NOT_CONFIRMED' });
});

test('Ctrl-C at a question is no answer, but a stop', async () => {
  const stop = new AbortController();
  const ask = async () => {
    stop.abort();
    return '';
  };
  const asked = confirm(context({ ask, stop: stop.signal }).context, 'Sure?', false);
  await expect(asked).rejects.toMatchObject({
    code: 'STOPPING',
    message: expect.stringMatching(/nothing was changed/),
  });
});

test('progress redraws its line on a terminal, and clears it at the end', () => {
  let now = 0;
  const { context: seen, printed } = context({});
  const progress = new Progress(seen, 'reading', 200, () => now);
  now = 1_000;
  progress.show(100);
  expect(printed()).toContain('50 %  100 of 200, 100/s');
  progress.end();
  expect(terminalText(printed()).endsWith('\r\u001b[K')).toBe(true);
});

test('progress redraws its line ten times a second at most', () => {
  let now = 0;
  const { context: seen, printed } = context({});
  const progress = new Progress(seen, 'reading', 200, () => now);
  const drawnAt = [0, 99, 100, 199, 200, 1_000].filter((at) => {
    const before = printed();
    now = at;
    progress.show(at);
    return printed() !== before;
  });
  expect(drawnAt).toEqual([100, 200, 1_000]);
});

test.each([
  [0, 0, '100 %  0 of 0, 0/s'],
  [3, 1, '33 %  1 of 3, 10/s'],
  [2, 5, '100 %  5 of 2, 50/s'],
])('progress through %i of which %i are done is %s', (total, done, text) => {
  let now = 0;
  const { context: seen, printed } = context({});
  const progress = new Progress(seen, 'reading', total, () => now);
  now = 100;
  progress.show(done);
  expect(printed()).toContain(text);
});

test('progress without a terminal is a line at intervals', () => {
  let now = 0;
  const { context: seen, printed } = context({ terminal: NOBODY });
  const progress = new Progress(seen, 'reading', 10, () => now);
  for (now = 0; now <= 20_000; now += 500) progress.show(5);
  progress.end();
  expect(printed().split('\n')).toHaveLength(3);
  expect(printed()).not.toContain('\r');
});

test.each([
  ['at a terminal is text in colours', SOMEBODY, undefined, {}, { colours: true }],
  ['elsewhere is JSON', NOBODY, undefined, {}, undefined],
  ['at a terminal is JSON with LOG_FORMAT=json', SOMEBODY, 'json', {}, undefined],
  ['elsewhere is text without colours with LOG_FORMAT=text', NOBODY, 'text', {}, { colours: false }],
  ['has no colours with NO_COLOR', SOMEBODY, undefined, { NO_COLOR: '1' }, { colours: false }],
] as const)('a log line %s', (_, terminal, format, env, expected) => {
  expect(logText({ terminal, env }, format, 'output')).toEqual(expected);
  expect(logText({ terminal, env }, format, 'errors')).toEqual(expected);
});

test.each([
  [57, 'reading ████████████░░░░░░░░░░░░ 50 %  100 of 200, 100/s'],
  [56, 'reading 50 %  100 of 200, 100/s'],
  [40, 'reading 50 %  100 of 200, 100/s'],
  [20, 'reading 50 %  100 o'],
])('progress stays in one line of a terminal with %i columns, so that it can be redrawn', (columns, line) => {
  let now = 0;
  const { context: seen, printed } = context({ terminal: { ...SOMEBODY, columns } });
  const progress = new Progress(seen, 'reading', 200, () => now);
  now = 1_000;
  progress.show(100);
  expect(terminalText(printed())).toBe(`\r\u001b[K${line}`);
});
