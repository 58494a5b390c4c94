import { UNREACHED_MS } from '../../src/worker/reach.ts';
import type { Surroundings } from './host.ts';
import type { Process } from './machine.ts';
import { FIRST } from './pairs.ts';

const LOOK_MS = 250;
/** A worker must have handed over by then: it joins again, and the group's leader assigns. */
const HANDED_OVER_WITHIN_MS = UNREACHED_MS + 5_000;
/** A worker counts as cut off for so long after it was: it takes nothing over that it may lose again. */
const UNSETTLED_MS = 45_000;

/**
 * Checks that a worker which is cut off from the leader of a partition that it owns hands that partition over to
 * another member, which reaches the leader. In the scenario without other faults only.
 */
export class HandOverWatch {
  readonly #around: Surroundings;
  readonly #process: Process;
  /** For how long the process has owned a partition that it does not reach while another member could own it. */
  #keptMs: ReadonlyMap<number, number> = new Map();

  constructor(around: Surroundings, process: Process) {
    this.#around = around;
    this.#process = process;
  }

  watch(): void {
    if (this.#around.scenario !== 'cut-off') return;
    this.#process.after(LOOK_MS, () => {
      this.#look();
      this.watch();
    });
  }

  #look(): void {
    const { brokers, history, world } = this.#around;
    const { name, cut } = this.#process;
    const kept = new Map<number, number>();
    this.#keptMs = this.#isCoordinated() ? this.#keptMs : new Map();
    for (const partition of brokers.shareOf(name).partitions) {
      const node = brokers.leadersOf(partition).find((leader) => cut.has(`kafka:${leader}`));
      if (node === undefined || !this.#isOtherReaching(node)) continue;
      const keptMs = (this.#keptMs.get(partition) ?? 0) + LOOK_MS;
      kept.set(partition, keptMs);
      if (keptMs <= HANDED_OVER_WITHIN_MS) continue;
      const when = `${name} at ${world.nowMs.toFixed(0)} ms`;
      history.keptUnreached.push(
        `${when} had owned partition ${partition} for ${keptMs} ms without reaching its leader`,
      );
    }
    this.#keptMs = kept;
  }

  /** Nobody hands anything over while the group's coordinator is frozen or down. */
  #isCoordinated(): boolean {
    const { cluster } = this.#around.brokers;
    const coordinator = cluster.groups.coordinators.get(FIRST.group);
    return coordinator !== undefined && cluster.broker(coordinator).state === 'up';
  }

  /** Whether another member has reached the broker for long enough to take a partition over. */
  #isOtherReaching(node: number): boolean {
    const { brokers, history, world } = this.#around;
    const members = brokers.cluster.groups.get(FIRST.group)?.members ?? [];
    return members.some(({ clientId }) => {
      const isCut = history.cuts.some(
        (cut) => cut.process === clientId && cut.link === `kafka:${node}` && world.nowMs < cut.untilMs + UNSETTLED_MS,
      );
      return clientId !== this.#process.name && !isCut;
    });
  }
}
