import { setTimeout as pause } from 'node:timers/promises';
import { Rng } from '../sim/rng.ts';
import type { Scene } from '../support/scene.ts';
import { SERVER_FAULTS, type Step, WORKER_FAULTS } from './faults.ts';
import type { Slot } from './slot.ts';

export interface ChaosOptions {
  readonly seed: number;
  readonly forMs: number;
  /** Told of each fault as it begins. */
  readonly trace: (line: string) => void;
}

const REST_MS = [200, 2_500] as const;

/** Faults without end, as the seed has them: of this table, on these workers. */
function* steps(rng: Rng, faults: typeof WORKER_FAULTS, slots: readonly Slot[]): Generator<Step, never> {
  for (;;) {
    const fault = rng.pick(faults);
    const slot = rng.pick(slots);
    const [restMs, lastsMs, chance] = [rng.between(...REST_MS), rng.between(...fault.lastsMs), rng.next()];
    yield { fault, slot, restMs, lastsMs, chance };
  }
}

/**
 * Plays faults for a time and mends them all. The servers, and each of two groups of workers, have faults of their own,
 * one after another, so that up to three overlap and never two befall the same process. The order within each of the
 * three comes from the seed alone.
 *
 * @returns how often each fault was played
 */
export async function playChaos(
  scene: Scene,
  slots: readonly Slot[],
  { seed, forMs, trace }: ChaosOptions,
): Promise<Readonly<Record<string, number>>> {
  const begunMs = performance.now();
  const played: Record<string, number> = {};
  const lane = async (name: string, plan: Iterable<Step>): Promise<void> => {
    for (const step of plan) {
      await pause(step.restMs);
      const atMs = performance.now() - begunMs;
      if (atMs + step.lastsMs > forMs) return;
      const { fault, slot, lastsMs } = step;
      const whom = name === 'servers' ? name : `worker ${slot.index}`;
      trace(`${(atMs / 1_000).toFixed(1)} s, ${whom}: ${fault.name}, ${Math.round(lastsMs)} ms`);
      played[fault.name] = (played[fault.name] ?? 0) + 1;
      await fault.play(scene, step);
    }
  };
  const [lonely, ...others] = slots;
  if (lonely === undefined || others.length === 0) throw new RangeError('chaos needs two workers or more');
  await Promise.all([
    lane('servers', steps(new Rng(3 * seed), SERVER_FAULTS, slots)),
    lane('workers', steps(new Rng(3 * seed + 1), WORKER_FAULTS, others)),
    lane('lonely', steps(new Rng(3 * seed + 2), WORKER_FAULTS, [lonely])),
  ]);
  return played;
}
