import { decodeLeaseRecord } from '../codec/namespace-values.ts';
import { clockOff, type DriftInterval, driftAtStart, medianInterval } from '../core/clock-guard.ts';
import { type Layout, tickStartMs } from '../core/layout.ts';
import { ceilingWaitMs, MAX_CEILING_WAIT_MS } from '../core/reservation.ts';
import type { Random, WallMs } from '../core/units.ts';
import type { KeyValue } from './identity-ports.ts';
import type { Snapshot, StoredCeiling } from './keys.ts';
import { type IdentitySettings, type Refusal, refusalFor } from './state.ts';

export type Choice =
  | { readonly kind: 'take'; readonly workerId: number; readonly ceiling: StoredCeiling }
  /** The clock reaches the lowest ceiling after waitMs; read again by then. */
  | { readonly kind: 'wait'; readonly workerId: number; readonly waitMs: number }
  | ({ readonly kind: 'refuse' } & Refusal);

/**
 * Picks a worker ID among `candidates`: at random among the free ones whose ceiling is in the past, so that competing
 * workers spread out; otherwise waits for the lowest ceiling, up to 35 s. Each candidate must have a ceiling.
 */
function pickWorkerId(
  snapshot: Snapshot,
  candidates: readonly number[],
  layout: Layout,
  now: WallMs,
  random: Random,
): Choice {
  const free = candidates.flatMap((workerId) => {
    const ceiling = snapshot.owners.has(workerId) ? undefined : snapshot.ceilings.get(workerId);
    return ceiling ? [{ workerId, ceiling, waitMs: ceilingWaitMs(layout, ceiling.ticks, now) }] : [];
  });
  if (free.length === 0) return { kind: 'refuse', code: 'POOL_EXHAUSTED', message: exhausted(candidates) };

  const usable = free.filter(({ ceiling }) => ceiling.ticks < layout.endTicks);
  if (usable.length === 0) {
    const message = `every free worker ID has reached the end of layout ${layout.name}: move to another layout or epoch`;
    return { kind: 'refuse', code: 'LAYOUT_EXHAUSTED', message };
  }

  const passed = usable.filter(({ waitMs }) => waitMs === 0);
  const picked = passed[Math.floor(random() * passed.length)];
  if (picked) return { kind: 'take', workerId: picked.workerId, ceiling: picked.ceiling };

  const lowest = usable.reduce((low, next) => (next.waitMs < low.waitMs ? next : low));
  if (lowest.waitMs > MAX_CEILING_WAIT_MS) {
    return { kind: 'refuse', code: 'ALL_CEILINGS_AHEAD', message: ceilingsAhead(lowest.waitMs) };
  }
  return { kind: 'wait', workerId: lowest.workerId, waitMs: lowest.waitMs };
}

/** The message for when the clock should have reached a ceiling by now and has not. */
export function ceilingsAhead(leadMs: number): string {
  return `every free worker ID is reserved for at least ${leadMs} ms beyond this machine's clock, so the clock is behind: check NTP`;
}

/** At least this many owners must disagree with our clock: a single other worker may be the one that is wrong. */
const MIN_OWNERS = 2;

/**
 * Compares our clock with others before a worker ID is claimed: a claim by a clock that is far ahead would put the
 * ceiling out of reach of the next owner. Either of two comparisons can refuse:
 *
 * - with the median of the brokers that answer now, within half of the drift that a running term tolerates;
 * - with the median of the current owners' ceilings, given at least two owners. A ceiling shows its owner's clock
 *   roughly: it is raised ahead of that clock, and is in its past when the owner's lease expires. A correct clock never
 *   differs by more than the longest wait for a ceiling.
 *
 * Rejects when no broker answers, since there is nothing to compare with.
 */
async function checkClock(settings: IdentitySettings, snapshot: Snapshot): Promise<Refusal | undefined> {
  const samples = (await settings.sampleBrokerClocks?.()) ?? [];
  const { reading, verdict } = settings.readClock();
  if (verdict.kind === 'eject') return refusalFor(verdict);
  const leads = ownersLeads(snapshot, settings.layout, reading.wall);
  const owners = leads.length < MIN_OWNERS ? undefined : medianInterval(leads);
  const off = driftAtStart(samples) ?? clockOff(owners, 0, 'the other workers');
  if (off === undefined) return undefined;
  return { code: off.reason, message: `${off.detail}: no worker ID is claimed; check NTP on this machine` };
}

/** Chooses a worker ID; before one is claimed, the clock is checked. Rejects as checkClock does. */
export async function chooseWorkerId(
  settings: IdentitySettings,
  snapshot: Snapshot,
  candidates: readonly number[],
  now: WallMs,
): Promise<Choice> {
  const choice = pickWorkerId(snapshot, candidates, settings.layout, now, settings.random);
  const doubt = choice.kind === 'take' ? await checkClock(settings, snapshot) : undefined;
  return doubt === undefined ? choice : { kind: 'refuse', ...doubt };
}

/** Returns, for each current owner, the interval in which our lead over its clock lies. */
function ownersLeads(snapshot: Snapshot, layout: Layout, now: WallMs): DriftInterval[] {
  return [...snapshot.owners.keys()].flatMap((workerId) => {
    const ceiling = snapshot.ceilings.get(workerId);
    if (ceiling === undefined) return [];
    const leadMs = now - tickStartMs(layout, ceiling.ticks);
    return [{ lowMs: leadMs - layout.tickMs - MAX_CEILING_WAIT_MS, highMs: leadMs + MAX_CEILING_WAIT_MS }];
  });
}

function exhausted(candidates: readonly number[]): string {
  const [only] = candidates;
  if (candidates.length === 1)
    return `worker ID ${only} is in use: stop the worker that holds it, or wait until its lease expires`;
  return `all ${candidates.length} worker IDs of the pool are in use: stop a worker, or create a namespace with a larger pool under another DATACENTER_ID`;
}

/** Leases this recent at one address may be left over from a crash loop; the first few are taken for other workers. */
const RECENT_MS = 60_000;
const TOLERATED_RECENT = 3;
const DELAY_EACH_MS = 1_000;
const MAX_DELAY_MS = 30_000;

/**
 * How long a process that has just started waits, in milliseconds. A process that crashes after each acquire leaves a
 * worker ID occupied for a lease's time; waiting a second for each such leftover keeps it from exhausting the pool.
 */
export function startDelayMs(snapshot: Snapshot, workerIp: string, now: WallMs): number {
  const leftovers = [...snapshot.owners.values()].filter((owner) => isRecent(owner, workerIp, now)).length;
  return Math.min(MAX_DELAY_MS, Math.max(0, leftovers - TOLERATED_RECENT) * DELAY_EACH_MS);
}

/** An unreadable record counts as old: only this delay depends on it. */
function isRecent(owner: KeyValue, workerIp: string, now: WallMs): boolean {
  try {
    const record = decodeLeaseRecord(owner.value);
    return record.assignedWorkerIp === workerIp && Math.abs(now - record.grantedAtMs) < RECENT_MS;
  } catch {
    return false;
  }
}
