import type { History } from './history.ts';
import { timing } from './setting.ts';

/** By how much a clock may be ahead that is used: half a second when it begins, and a second from there. */
const AHEAD_MS = 2_500;

/** Each issued tick lay below the ceiling that was stored when it was taken. */
export function covered({ issued }: History): string | undefined {
  const bare = issued.find(({ tick, ceiling }) => ceiling === undefined || tick >= ceiling);
  return bare && `worker ${bare.workerId} issued tick ${bare.tick} under ceiling ${bare.ceiling}`;
}

/**
 * Reservations of one worker ID follow each other in the order of their fences, and each is one process's; stored ceilings
 * only rise. Once etcd was set back, two terms may have one fence and begin at one tick.
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

/** No ceiling is raised so far into the future that others would have to wait for it: clocks that are ahead claim nothing. */
export function nearThePresent({ ceilings, brokersOffMs, setBacks }: History): string | undefined {
  if (setBacks.length > 0) return undefined; // a rebuild raises all of them, and adds what may be reserved
  const limitMs = timing.reserveMs + AHEAD_MS + brokersOffMs;
  const far = ceilings.find(({ aheadMs }) => aheadMs > limitMs);
  return far && `the ceiling of worker ${far.workerId} lies ${far.aheadMs.toFixed(0)} ms ahead`;
}

/** Workers that are configured differently never allocate in one namespace; an etcd that is wiped knows of none. */
export function oneConfiguration({ grants, setBacks }: History): string | undefined {
  if (setBacks.length > 0) return undefined;
  const configs = new Set(grants.map(({ config }) => config));
  return configs.size > 1 ? [...configs].join(' and ') : undefined;
}

/** From when a rebuild has read what was reserved, nobody uses a reservation of before that it has not read. */
export function rebuiltOverAll({ grants, rebuilds }: History): string | undefined {
  for (const { order, floor, known } of rebuilds) {
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

/** How terms of one worker ID follow each other: by their fences, unless those came a second time. */
function succession(setBacks: readonly number[]): (a: TermStart, b: TermStart) => number {
  return (a, b) => (setBacks.length === 0 ? compare(a.fence, b.fence) : a.from - b.from || compare(a.fence, b.fence));
}

/** The IDs of one worker ID rise: within a term as they were taken, and from each term to the next. */
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
 * Nothing is allocated past the own deadline, counted from the sending of the last renewal that was answered; nor by a
 * clock that lies behind what it has shown; nor by a process that stood still, before a renewal that it sent since.
 */
export function stopped({ grants }: History): string | undefined {
  const late = grants.find(({ sinceRenewalMs }) => sinceRenewalMs > timing.refuseAfterMs);
  if (late) {
    return `worker ${late.workerId} allocated ${late.sinceRenewalMs.toFixed(0)} ms after its last renewal was sent`;
  }
  const back = grants.find(({ behindMs }) => behindMs > 0);
  if (back) return `worker ${back.workerId} allocated by a clock ${back.behindMs} ms behind what it had shown`;
  const still = grants.find(({ stoodStill }) => stoodStill);
  return still && `worker ${still.workerId} allocated though it had stood still since its last renewal was sent`;
}

/** Nobody says that etcd was set back, for which all workers have to be stopped, unless it was. */
export function noFalseAlarm({ alarms, setBacks }: History): string | undefined {
  const [since = Number.POSITIVE_INFINITY] = setBacks;
  return alarms.some((order) => order < since)
    ? 'a worker refused as RESTORED though etcd was never set back'
    : undefined;
}

export function compare(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
