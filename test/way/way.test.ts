import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { GOALS } from './way.ts';

/**
 * The most files of each way. They only ever fall: whoever leads a request through one more file takes another away.
 */
const BOUNDS = { request: 69, numbers: 79, takeover: 63, lease: 30 };
/** Fewer would mean that nothing was measured. */
const LEAST = 10;
/** The measurement takes ten seconds of processor time. */
const TIMEOUT_MS = 180_000;

type Files = Readonly<Record<string, readonly string[]>>;

test('a request and a take-over pass no more files than they did', { timeout: TIMEOUT_MS }, () => {
  const main = join(import.meta.dirname, 'main.ts');
  // A process of its own, since the test runner changes the sources that it loads.
  const printed = execFileSync(process.execPath, [main, '--json'], { encoding: 'utf8', timeout: TIMEOUT_MS });
  const ways = JSON.parse(printed) as Record<keyof typeof BOUNDS, { own: Files; whole?: Files }>;
  for (const name of ['request', 'numbers', 'takeover', 'lease'] as const) {
    const files = Object.keys(ways[name].own);
    expect.soft(files.length, `${name}: ${files.join(' ')}`).toBeLessThanOrEqual(BOUNDS[name]);
    expect.soft(files.length, name).toBeGreaterThan(LEAST);
  }
  expect(ways.request.own['pipeline/decide.ts']?.length).toBeGreaterThan(0);
  expect(Object.keys(ways.request.whole ?? {})).toContain('kafka/loops/tail.ts');
  expect(GOALS).toEqual({ request: 60, takeover: 40 });
});
