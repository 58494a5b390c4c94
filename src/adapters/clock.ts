import { monoMs, type Reading, wallMs } from '../core/units.ts';

/** The two clocks must be read within this time, or a pause between the readings would look like a step. */
const TOGETHER_MS = 1;
const MAX_TRIES = 3;

/**
 * Returns a function that reads both clocks. The wall clock is read between two monotonic readings. If these are more
 * than 1 ms apart the process was paused in between, and the clocks are read again, up to 3 times; the closest pair is
 * used.
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
