import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { drawSeed, seeded, useSeed } from './seeded.ts';

const SETUP = join(import.meta.dirname, 'seed-setup.ts');
const SEEDED = join(import.meta.dirname, 'seeded.ts');
const SEED = 41;
const REPEATS = 2;

/** A file of tests that fail, in a project of its own. */
const FAILING = `
  import fc from 'fast-check';
  import { expect, test } from 'vitest';
  import { seeded } from '${SEEDED}';

  test('value', () => expect(seeded('value').uuid()).toBe(''));
  test('property', () => fc.assert(fc.property(fc.nat(), (n) => n < 0)));
  test('nothing', () => expect(1).toBe(2));
`;

let directory: string;

beforeEach(() => {
  const parent = join(ROOT, '.idalloc');
  mkdirSync(parent, { recursive: true });
  directory = mkdtempSync(join(parent, 'seeded-'));
});

afterEach(() => {
  useSeed(0);
  rmSync(directory, { recursive: true });
});

/** The messages of the failed tests by name, in the order of repetitions. */
async function messagesOf(file: string): Promise<Record<string, readonly string[]>> {
  writeFileSync(join(directory, 'failing.test.ts'), file);
  const settings = {
    include: ['*.test.ts'],
    setupFiles: [SETUP],
    repeats: REPEATS,
    env: { IDALLOC_SEED: String(SEED) },
  };
  writeFileSync(join(directory, 'vitest.config.mjs'), `export default ${JSON.stringify({ test: settings })};`);
  const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
  const written = join(directory, 'report.json');
  const args = [vitest, 'run', '--root', directory, '--reporter=json', `--outputFile=${written}`];
  await once(spawn(process.execPath, args, { stdio: 'ignore' }), 'exit');
  const report = JSON.parse(readFileSync(written, 'utf8')) as {
    readonly testResults: readonly {
      readonly assertionResults: readonly { readonly title: string; readonly failureMessages: readonly string[] }[];
    }[];
  };
  const results = report.testResults.flatMap(({ assertionResults }) => assertionResults);
  return Object.fromEntries(results.map(({ title, failureMessages }) => [title, failureMessages]));
}

test('the same seed and purpose give the same values, another of either gives others', () => {
  const values = (n: number, purpose: string) => {
    useSeed(n);
    const random = seeded(purpose);
    return [random.next(), random.uuid(), random.bytes(5).toString('hex')];
  };
  expect(values(0, 'a')).toEqual(values(0, 'a'));
  expect(values(0, 'a')).not.toEqual(values(1, 'a'));
  expect(values(0, 'a')).not.toEqual(values(0, 'b'));
  expect(values(0, 'a')[1]).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const first = drawSeed();
  useSeed(1);
  expect(drawSeed()).toBe((first + 1) % 2 ** 31);
});

test.each(['-1', '1.5', 'x', '', '2147483648'])('%j is rejected as a seed, with the variable', async (text) => {
  vi.stubEnv('IDALLOC_SEED', text);
  vi.resetModules();
  await expect(import('./seeded.ts')).rejects.toThrow(`IDALLOC_SEED is '${text}': set it to a whole number below`);
  vi.unstubAllEnvs();
});

test('a failed test names the seed of its repetition, if it drew anything', async () => {
  const { value = [], property = [], nothing = [] } = await messagesOf(FAILING);
  const seeds = [SEED, SEED + 1, SEED + 2];
  const named = (messages: readonly string[]) =>
    messages.map((message) => /IDALLOC_SEED=(\d+) repeats/.exec(message)?.[1]);
  expect(named(value)).toEqual(seeds.map(String));
  expect(named(property)).toEqual(seeds.map(String));
  expect(property.map((message) => Number(/seed: (\d+)/.exec(message)?.[1]))).toEqual(seeds);
  expect(named(nothing)).toEqual([undefined, undefined, undefined]);
});
