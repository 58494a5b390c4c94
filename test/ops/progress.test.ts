import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { canRewrite, progressOn } from '../../ops/dev/progress.mjs';

/** A terminal that knows line ends, carriage returns and the sequence that erases a line. */
class Screen {
  readonly columns = 40;
  readonly isTTY: boolean;
  raw = '';

  constructor(isTTY: boolean) {
    this.isTTY = isTTY;
  }

  write(text: string): void {
    this.raw += text;
  }

  /** What a person sees. */
  get lines(): string[] {
    return this.raw.split('\n').map((line) => {
      let shown = '';
      let column = 0;
      for (const [token] of line.replaceAll('\u001b[2K', '⌫').matchAll(/\r|⌫|[^\r⌫]+/g)) {
        if (token === '\r') column = 0;
        else if (token === '⌫') shown = '';
        else {
          shown = shown.slice(0, column) + token + shown.slice(column + token.length);
          column += token.length;
        }
      }
      return shown;
    });
  }
}

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

function start(isTTY: boolean, env: NodeJS.ProcessEnv = {}) {
  const screen = new Screen(isTTY);
  return { screen, progress: progressOn(screen, { env, nowMs: () => Date.now() }) };
}

test('at a terminal a step rewrites the one before, and lines that are said stay above it', () => {
  const { screen, progress } = start(true);
  progress.step('a long first step');
  progress.step('two');
  expect(screen.lines).toEqual(['[  0.0 s] two']);
  progress.say('kept');
  progress.step('three');
  expect(screen.lines).toEqual(['[  0.0 s] kept', '[  0.0 s] three']);
});

test('at a terminal the seconds of a step are counted while nothing else happens', () => {
  const { screen, progress } = start(true);
  progress.step('working');
  vi.advanceTimersByTime(3_000);
  expect(screen.lines).toEqual(['[  3.0 s] working']);
});

test('at a terminal a long step is cut to one line, and one of many lines is made one', () => {
  const { screen, progress } = start(true);
  progress.step(`a\nb ${'x'.repeat(100)}`);
  expect(screen.lines).toEqual([`[  0.0 s] a b ${'x'.repeat(25)}`]);
});

test('settling removes the step and stops its seconds', () => {
  const { screen, progress } = start(true);
  progress.step('working');
  progress.settle();
  vi.advanceTimersByTime(5_000);
  expect(screen.lines).toEqual(['']);
  expect(vi.getTimerCount()).toBe(0);
});

test('without a terminal each step is a line, without escape sequences or timers', () => {
  for (const [isTTY, env] of [
    [false, {}],
    [true, { NO_COLOR: '1' }],
    [true, { CI: 'true' }],
    [true, { TERM: 'dumb' }],
  ] as const) {
    const { screen, progress } = start(isTTY, env);
    progress.step('one');
    progress.say('two');
    progress.settle();
    expect(screen.raw).toBe('[  0.0 s] one\n[  0.0 s] two\n');
    expect(vi.getTimerCount()).toBe(0);
  }
});

test('an empty NO_COLOR asks for nothing', () => {
  expect(canRewrite({ isTTY: true }, { NO_COLOR: '' })).toBe(true);
});
