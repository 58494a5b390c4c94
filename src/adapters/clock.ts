import { monoMs, type Reading, wallMs } from '../core/units.ts';

/** The two clocks must have been read within this time, or a pause between them would look like a step. */
const TOGETHER_MS = 1;
const MAX_TRIES = 3;

/**
 * Makes a reader of both clocks. The wall clock is read between two monotonic readings; when those are more than 1 ms
 * apart the process was held up in between, and the clocks are read again, 3 times at most. The closest pair counts.
 */
export function clockReader(wall: () => number, mono: () => number): () => Reading {
  return () => {
    let best = { gapMs: Number.POSITIVE_INFINITY, wall: 0, mono: 0 };
    for (let tries = 0; tries < MAX_TRIES && best.gapMs > TOGETHER_MS; tries += 1) {
      const before = mono();
      const between = wall();
      const gapMs = mono() - before;
      if (gapMs < best.gapMs) best = { gapMs, wall: between, mono: before };
    }
    return { wall: wallMs(best.wall), mono: monoMs(best.mono) };
  };
}
