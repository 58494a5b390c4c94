import { randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { Rng } from '../sim/rng.ts';

/**
 * Random values of tests. All follow from the seed of the run, IDALLOC_SEED, so that a failure can be repeated: the
 * failed test names the seed. `vitest.config.ts` sets it, a different one for each commit. `ops/lint/seeded.grit`
 * rejects every other source of randomness in tests.
 */

/** The variable with the seed of a run. */
export const SEED_VARIABLE = 'IDALLOC_SEED';
/** Seeds are whole numbers below this, as fast-check takes them. */
export const SEEDS = 2 ** 31;

/** Without vitest, as in benchmarks, the seed is 1. */
const RUN_SEED = parseSeed(process.env[SEED_VARIABLE] ?? '1');
let seed = RUN_SEED;
/** Whether the test has drawn something that depends on the seed; between tests, whether its file has. */
let isDrawn = false;

function parseSeed(text: string): number {
  const parsed = Number(text);
  if (/^\d+$/.test(text) && parsed < SEEDS) return parsed;
  throw new RangeError(`${SEED_VARIABLE} is '${text}': set it to a whole number below ${SEEDS}`);
}

/** Another seed than in earlier runs, for who asks for one; to be printed. */
export function freshSeed(): number {
  return randomInt(SEEDS);
}

/** The n-th seed of a run, counted from 0: what is drawn from now on depends on it. Nothing has been drawn yet. */
export function useSeed(n: number): void {
  seed = (RUN_SEED + n) % SEEDS;
  isDrawn = false;
}

/** The seed on which what was drawn so far depends; undefined if nothing was drawn. */
export function seedInUse(): number | undefined {
  return isDrawn ? seed : undefined;
}

/** The seed, for something that depends on it. */
export function drawSeed(): number {
  isDrawn = true;
  return seed;
}

/** Random values of one purpose. */
class Seeded extends Rng {
  bytes(count: number): Buffer {
    return Buffer.from(Array.from({ length: count }, () => this.below(256)));
  }

  /** A UUID of version 4. */
  uuid(): string {
    const bytes = this.bytes(16);
    bytes[6] = ((bytes[6] as number) & 0x0f) | 0x40;
    bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
    return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  }
}

/** The values for a purpose: the same in each run with the same seed, whatever else a run draws, or in which order. */
export function seeded(purpose: string): Seeded {
  return new Seeded(crc32(`${drawSeed()} ${purpose}`));
}
