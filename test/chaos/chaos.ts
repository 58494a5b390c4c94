import { setTimeout as pause } from 'node:timers/promises';
import { Rng } from '../sim/rng.ts';
import type { Scene } from '../support/scene.ts';
import type { WorkerProcess } from '../support/worker-process.ts';
import { SERVER_FAULTS, type Step, WORKER_FAULTS } from './faults.ts';
import type { Slot } from './slot.ts';

export interface ChaosOptions {
  readonly seed: number;
  readonly forMs: number;
  /** Called with a line for each fault as it begins. */
  readonly trace: (line: string) => void;
}

/** A fault that was injected; times by the monotonic clock of the test. */
export interface Played {
  readonly name: string;
  readonly fromMs: number;
  readonly toMs: number;
  /** The process that it affected, as of the end of the fault; undefined for a fault of the servers. */
  readonly worker: WorkerProcess | undefined;
}

const REST_MS = [200, 2_500] as const;

/** A fault tests most on a worker that serves. After this time without recovery, it is injected all the same. */
const SETTLE_LIMIT_MS = 6_000;

function shuffled<T>(rng: Rng, from: readonly T[]): readonly T[] {
  const drawn = from.map((one) => ({ one, at: rng.next() }));
  return drawn.sort((a, b) => a.at - b.at).map(({ one }) => one);
}

/** An endless sequence of faults from the seed: the whole table, on these workers, then all again in another order. */
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
 * Injects faults for a time, and removes each of them again. The servers and each of two groups of workers are separate
 * lanes. Within a lane, faults follow one another, so that up to three overlap and never two affect the same process.
 * The order within each lane depends on the seed alone.
 *
 * @returns all faults, in order within each lane
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
      const target = ofServers ? 'servers' : `worker ${slot.index}`;
      trace(`${((fromMs - begunMs) / 1_000).toFixed(1)} s, ${target}: ${fault.name}, for ${Math.round(lastsMs)} ms`);
      await fault.play(scene, step);
      const worker = ofServers ? undefined : slot.worker;
      played.push({ name: fault.name, fromMs, toMs: performance.now(), worker });
    }
  };
  const [single, ...others] = slots;
  if (single === undefined || others.length === 0) throw new RangeError('chaos needs two workers or more');
  await Promise.all([
    lane(true, steps(new Rng(3 * seed), SERVER_FAULTS, slots)),
    lane(false, steps(new Rng(3 * seed + 1), WORKER_FAULTS, others)),
    lane(false, steps(new Rng(3 * seed + 2), WORKER_FAULTS, [single])),
  ]);
  return played;
}
