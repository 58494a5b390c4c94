import { expect, test } from 'vitest';
import type { CliContext } from '../../src/cli/context.ts';
import { confirm, Progress, palette } from '../../src/cli/terminal.ts';

const SOMEBODY = { input: true, output: true, errors: true };
const NOBODY = { input: false, output: false, errors: false };

function context(about: Partial<CliContext>): { context: CliContext; told: () => string } {
  let told = '';
  const made = {
    env: {},
    terminal: SOMEBODY,
    err: (text: string) => {
      told += text;
    },
    ask: async () => '',
    ...about,
  };
  return { context: made as unknown as CliContext, told: () => told };
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

test('what can not be taken back needs --yes where nobody can be asked', async () => {
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
])("takes the answer '%s' as it is meant", async (answer, meant) => {
  const asked = confirm(context({ ask: async () => answer }).context, 'Sure?', false);
  if (meant) await asked;
  else await expect(asked).rejects.toMatchObject({ code: 'NOT_CONFIRMED' });
});

test('progress draws over its line on a terminal, and wipes it away', () => {
  let now = 0;
  const { context: seen, told } = context({});
  const progress = new Progress(seen, 'reading', 200, () => now);
  now = 1_000;
  progress.show(100);
  expect(told()).toContain('50 %  100 of 200, 100/s');
  progress.end();
  expect(told().endsWith('\r\u001b[K')).toBe(true);
});

test('progress is a line now and then in a log', () => {
  let now = 0;
  const { context: seen, told } = context({ terminal: NOBODY });
  const progress = new Progress(seen, 'reading', 10, () => now);
  for (now = 0; now <= 20_000; now += 500) progress.show(5);
  progress.end();
  expect(told().split('\n')).toHaveLength(3);
  expect(told()).not.toContain('\r');
});
