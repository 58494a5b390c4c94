import { WitnessTable } from '../../src/codec/witness.ts';
import { recordsOf } from '../support/fake-kafka/batches.ts';
import type { History, Witnessed } from './history.ts';
import { DATACENTER } from './setting.ts';

/** The witness topic as compaction may leave it at any time: of each key only its last record. */
export class CompactedWitness {
  readonly #last = new Map<string, { readonly workerId: number; readonly ticks: number }>();
  readonly #highest = new Map<number, number>();

  /** Applies the next batch of the log, and returns the worker IDs whose highest ceiling changed. */
  apply(batch: Buffer): Omit<Witnessed, 'order'>[] {
    const touched = new Set<number>();
    for (const { key, value, headers } of recordsOf(batch)) {
      const name = String(key);
      const table = new WitnessTable(DATACENTER);
      table.apply(key, value, headers ?? {});
      const [witness] = table.view().witnesses;
      const workerId = witness?.workerId ?? this.#last.get(name)?.workerId;
      if (workerId === undefined) continue;
      touched.add(workerId);
      if (witness === undefined) this.#last.delete(name);
      else this.#last.set(name, witness);
    }
    return [...touched].flatMap((workerId) => {
      const left = [...this.#last.values()].filter((witness) => witness.workerId === workerId);
      const ticks = Math.max(0, ...left.map((witness) => witness.ticks));
      if (ticks === this.#highest.get(workerId)) return [];
      this.#highest.set(workerId, ticks);
      return [{ workerId, ticks }];
    });
  }
}

/** Whatever compaction has taken away, the witness topic shows each worker ID at least as high as it was ever used. */
export function witnessed({ grants, witnessed: changes }: History): string | undefined {
  const [used, shown] = [new Map<number, number>(), new Map<number, number>()];
  const events = [
    ...grants.map(({ order, workerId, to }) => ({ order, workerId, known: used, ticks: to })),
    ...changes.map(({ order, workerId, ticks }) => ({ order, workerId, known: shown, ticks })),
  ].sort((a, b) => a.order - b.order);
  for (const { workerId, known, ticks } of events) {
    known.set(workerId, known === used ? Math.max(ticks, used.get(workerId) ?? 0) : ticks);
    const [low, high] = [shown.get(workerId) ?? 0, used.get(workerId) ?? 0];
    if (low < high) return `worker ${workerId} used up to ${high}, but the compacted witness topic shows only ${low}`;
  }
  return undefined;
}
