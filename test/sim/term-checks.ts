import { WitnessTable } from '../../src/codec/witness.ts';
import { recordsOf } from '../support/fake-kafka/batches.ts';
import type { History, Witnessed } from './history.ts';
import { DATACENTER, timing } from './setting.ts';

/**
 * The most by which a clock in use may be ahead: half a second at the start of a term, and a second more after that.
 */
const AHEAD_MS = 2_500;

/** Each issued tick was below the ceiling stored at the time. */
export function covered({ issued }: History): string | undefined {
  const bare = issued.find(({ tick, ceiling }) => ceiling === undefined || tick >= ceiling);
  return bare && `worker ${bare.workerId} issued tick ${bare.tick} under ceiling ${bare.ceiling}`;
}

/**
 * Reservations of one worker ID follow each other in the order of their fences, and each belongs to one process; stored
 * ceilings only rise. Once etcd was rolled back, two terms may have the same fence and start at the same tick.
 */
export function disjoint({ grants, ceilings, setBacks }: History): string | undefined {
  const fell = ceilings.find(({ before, after }) => after === undefined || after <= before);
  if (fell !== undefined) return `the ceiling of worker ${fell.workerId} went from ${fell.before} to ${fell.after}`;
  const terms = new Map<string, { workerId: number; fence: bigint; from: number; to: number }>();
  for (const { process, workerId, fence, from, to } of grants) {
    const name = `${workerId}/${fence}/${from}/${process}`;
    const known = terms.get(name) ?? { workerId, fence, from, to };
    terms.set(name, { ...known, from: Math.min(known.from, from), to: Math.max(known.to, to) });
  }
  const sorted = [...terms.values()].sort((a, b) => a.workerId - b.workerId || succession(setBacks)(a, b));
  for (const [i, term] of sorted.entries()) {
    const next = sorted[i + 1];
    if (next?.workerId !== term.workerId || next.from >= term.to) continue;
    return `worker ${term.workerId}: fence ${term.fence} has up to ${term.to}, fence ${next.fence} from ${next.from}`;
  }
  return undefined;
}

/** No ceiling is raised so far into the future that others must wait for it: clocks that are ahead claim nothing. */
export function nearThePresent({ ceilings, brokersOffMs, isBrokerFarOff, setBacks }: History): string | undefined {
  if (setBacks.length > 0) return undefined; // a rebuild raises all of them by the length of a reservation
  // Two of the three brokers lead, so one of them does not show a clock that is ahead.
  if (isBrokerFarOff) return undefined;
  const limitMs = timing.reserveMs + AHEAD_MS + brokersOffMs;
  const far = ceilings.find(({ aheadMs }) => aheadMs > limitMs);
  return far && `the ceiling of worker ${far.workerId} lies ${far.aheadMs.toFixed(0)} ms ahead`;
}

/** However a clock drifts, the next comparison with the brokers' ends its use, though nothing is appended meanwhile. */
export function comparedClocks({ grants, mostOffMs = Number.POSITIVE_INFINITY }: History): string | undefined {
  const off = grants.find(({ offMs }) => Math.abs(offMs) > mostOffMs);
  return off && `${off.process} allocated by a clock that was off by ${off.offMs.toFixed(0)} ms`;
}

/** Workers with different configurations never allocate in one namespace; a wiped etcd knows none of them. */
export function oneConfiguration({ grants, setBacks }: History): string | undefined {
  if (setBacks.length > 0) return undefined;
  const configs = new Set(grants.map(({ config }) => config));
  return configs.size > 1 ? [...configs].join(' and ') : undefined;
}

/**
 * Once a rebuild has read the reservations, no worker uses an older one that it has not read. That holds for rebuilds
 * that have written their floor: what comes after one that ended before lies above the floor of the next one.
 */
export function rebuiltOverAll({ grants, rebuilds }: History): string | undefined {
  for (const { order, floor, known } of rebuilds.filter(({ isWritten }) => isWritten)) {
    const missed = grants.find(
      (grant) =>
        grant.order > order &&
        grant.from < floor &&
        grant.to > (known.get(`${grant.workerId}/${grant.fence}`) ?? Number.NEGATIVE_INFINITY),
    );
    if (missed) return `worker ${missed.workerId}, fence ${missed.fence} uses up to ${missed.to}, which was not read`;
  }
  return undefined;
}

interface TermStart {
  readonly fence: bigint;
  readonly from: number;
}

/** The order of the terms of one worker ID: by their fences, unless etcd repeated those. */
function succession(setBacks: readonly number[]): (a: TermStart, b: TermStart) => number {
  return (a, b) => (setBacks.length === 0 ? compare(a.fence, b.fence) : a.from - b.from || compare(a.fence, b.fence));
}

/** The IDs of one worker ID rise: within a term in order of allocation, and from each term to the next. */
export function increasing({ issued, setBacks }: History): string | undefined {
  const inOrder = succession(setBacks);
  const sorted = [...issued].sort((a, b) => a.workerId - b.workerId || inOrder(a, b) || a.order - b.order);
  for (const [i, range] of sorted.entries()) {
    const next = sorted[i + 1];
    if (next?.workerId !== range.workerId || next.first > range.last) continue;
    return `worker ${range.workerId}: ${next.first} (fence ${next.fence}) came after ${range.last} (fence ${range.fence})`;
  }
  return undefined;
}

/**
 * Nothing is allocated after the own deadline, counted from when the last answered renewal was sent; nor by a clock
 * below the highest time it has shown; nor by a process after a pause, before it has sent another renewal.
 */
export function stopped({ grants }: History): string | undefined {
  const late = grants.find(({ sinceRenewalMs }) => sinceRenewalMs > timing.refuseAfterMs);
  if (late) {
    return `worker ${late.workerId} allocated ${late.sinceRenewalMs.toFixed(0)} ms after its last answered renewal was sent`;
  }
  const back = grants.find(({ behindMs }) => behindMs > 0);
  if (back) return `worker ${back.workerId} allocated by a clock ${back.behindMs} ms behind what it had shown`;
  const still = grants.find(({ wasPaused }) => wasPaused);
  return still && `worker ${still.workerId} allocated although it was frozen since its last renewal was sent`;
}

/** No worker reports that etcd was rolled back unless it was: operators stop all workers when that is reported. */
export function noFalseAlarm({ alarms, setBacks }: History): string | undefined {
  const [since = Number.POSITIVE_INFINITY] = setBacks;
  return alarms.some((order) => order < since)
    ? 'a worker refused as RESTORED though etcd was never rolled back'
    : undefined;
}

export function compare(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

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
