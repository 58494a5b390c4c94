import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { readPage } from '../support/docs.ts';
import { GOALS } from './way.ts';

/**
 * The most files of each way. They fall: whoever leads a request through one more file takes another away. The file of
 * accounts is the exception: who pays has to be known where it is decided who waits.
 */
const BOUNDS = { request: 57, numbers: 65, takeover: 39, lease: 26 };
/** Fewer would mean that nothing was measured. */
const LEAST = 10;
/** The measurement takes ten seconds of processor time. */
const TIMEOUT_MS = 180_000;

type Files = Readonly<Record<string, readonly string[]>>;

let ways: Readonly<Record<keyof typeof BOUNDS, { readonly own: Files; readonly whole?: Files }>>;

beforeAll(() => {
  const main = join(import.meta.dirname, 'main.ts');
  // A process of its own, since the test runner changes the sources that it loads.
  const printed = execFileSync(process.execPath, [main, '--json'], { encoding: 'utf8', timeout: TIMEOUT_MS });
  ways = JSON.parse(printed) as typeof ways;
}, TIMEOUT_MS);

test('a request and a take-over pass no more files than they did', () => {
  for (const name of ['request', 'numbers', 'takeover', 'lease'] as const) {
    const files = Object.keys(ways[name].own);
    expect.soft(files.length, `${name}: ${files.join(' ')}`).toBeLessThanOrEqual(BOUNDS[name]);
    expect.soft(files.length, name).toBeGreaterThan(LEAST);
  }
  expect(GOALS).toEqual({ request: 60, takeover: 40 });
});

/** The files that ARCHITECTURE.md tells to read under a heading, in its order. */
function readingOrder(heading: string): string[] {
  const [, section = ''] = readPage('ARCHITECTURE.md').split(`\n### ${heading}\n`);
  const [list = ''] = section.split('\n#');
  return [...list.matchAll(/`([\w-]+(?:\/[\w-]+)+)`/g)].map(([, path]) => `${path}.ts`);
}

test('a request passes every file that the page tells to read from the record to the reply', () => {
  const files = readingOrder('From the record to the reply');
  expect(files.length).toBeGreaterThan(LEAST);
  expect(files.filter((file) => ways.request.whole?.[file] === undefined)).toEqual([]);
});

test('a take-over passes every file that the page tells to read from a dead worker', () => {
  const files = readingOrder('From a dead worker to the next answer');
  expect(files.length).toBeGreaterThan(LEAST);
  expect(files.filter((file) => ways.takeover.own[file] === undefined)).toEqual([]);
});

test('a new lease, or the next request, passes every file that the page tells to read from the lease to the gate', () => {
  const files = readingOrder('From the lease to the gate');
  expect(files.length).toBeGreaterThan(LEAST);
  const passed = { ...ways.request.whole, ...ways.lease.own };
  expect(files.filter((file) => passed[file] === undefined)).toEqual([]);
});
