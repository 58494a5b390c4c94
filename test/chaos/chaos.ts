import { setTimeout as pause } from 'node:timers/promises';
import { Rng } from '../sim/rng.ts';
import type { Scene } from '../support/scene.ts';
import type { WorkerProcess } from '../support/worker-process.ts';
import { SERVER_FAULTS, type Step, WORKER_FAULTS } from './faults.ts';
import type { Slot } from './slot.ts';

export interface ChaosOptions {
  readonly seed: number;
  readonly forMs: number;
  /** Told of each fault as it begins. */
  readonly trace: (line: string) => void;
}

/** A fault as it was played; times by the monotonic clock of the test. */
export interface Played {
  readonly name: string;
  readonly fromMs: number;
  readonly toMs: number;
  /** The process that it befell, as it was when the fault ended; undefined for a fault of the servers. */
  readonly worker: WorkerProcess | undefined;
}

const REST_MS = [200, 2_500] as const;

/** A fault shows most on a worker that serves; one that does not come back for so long gets it as it is. */
const SETTLE_LIMIT_MS = 6_000;

function shuffled<T>(rng: Rng, from: readonly T[]): readonly T[] {
  const drawn = from.map((one) => ({ one, at: rng.next() }));
  return drawn.sort((a, b) => a.at - b.at).map(({ one }) => one);
}

/** Faults without end, as the seed has them: all of this table, on these workers, then all again in another order. */
function* steps(rng: Rng, faults: typeof WORKER_FAULTS, slots: readonly Slot[]): Generator<Step, never> {
  const round = faults.flatMap((fault) => Array.from({ length: fault.times ?? 1 }, () => fault));
  for (;;) {
    for (const fault of shuffled(rng, round)) {
      const slot = rng.pick(slots);
      const [restMs, lastsMs, chance] = [rng.between(...REST_MS), rng.between(...fault.lastsMs), rng.next()];
      yield { fault, slot, restMs, lastsMs, chance };
    }
  }
}

/**
 * Plays faults for a time and mends them all. The servers, and each of two groups of workers, have faults of their own,
 * one after another, so that up to three overlap and never two befall the same process. The order within each of the
 * three comes from the seed alone.
 *
 * @returns all faults, each lane's in its order
 */
export async function playChaos(
  scene: Scene,
  slots: readonly Slot[],
  { seed, forMs, trace }: ChaosOptions,
): Promise<readonly Played[]> {
  const begunMs = performance.now();
  const played: Played[] = [];
  const lane = async (ofServers: boolean, plan: Iterable<Step>): Promise<void> => {
    for (const step of plan) {
      await pause(step.restMs);
      if (!ofServers) await step.slot.settled(SETTLE_LIMIT_MS);
      const fromMs = performance.now();
      if (fromMs - begunMs + step.lastsMs > forMs) return;
      const { fault, slot, lastsMs } = step;
      const whom = ofServers ? 'servers' : `worker ${slot.index}`;
      trace(`${((fromMs - begunMs) / 1_000).toFixed(1)} s, ${whom}: ${fault.name}, ${Math.round(lastsMs)} ms`);
      await fault.play(scene, step);
      const worker = ofServers ? undefined : slot.worker;
      played.push({ name: fault.name, fromMs, toMs: performance.now(), worker });
    }
  };
  const [lonely, ...others] = slots;
  if (lonely === undefined || others.length === 0) throw new RangeError('chaos needs two workers or more');
  await Promise.all([
    lane(true, steps(new Rng(3 * seed), SERVER_FAULTS, slots)),
    lane(false, steps(new Rng(3 * seed + 1), WORKER_FAULTS, others)),
    lane(false, steps(new Rng(3 * seed + 2), WORKER_FAULTS, [lonely])),
  ]);
  return played;
}
