import { decodeLeaseRecord } from '../codec/lease-record.ts';
import { clockOff, type DriftInterval, driftAtStart, medianInterval } from '../core/clock-guard.ts';
import { type Layout, tickStartMs } from '../core/layout.ts';
import { ceilingWaitMs, MAX_CEILING_WAIT_MS } from '../core/reservation.ts';
import type { Random, WallMs } from '../core/units.ts';
import type { KeyValue } from './ports.ts';
import type { IdentitySettings } from './settings.ts';
import type { Snapshot, StoredCeiling } from './snapshot.ts';
import { type Refusal, refusalOf } from './state.ts';

export type Choice =
  | { readonly kind: 'take'; readonly workerId: number; readonly ceiling: StoredCeiling }
  /** The clock reaches the lowest ceiling after waitMs; read again then, or before. */
  | { readonly kind: 'wait'; readonly workerId: number; readonly waitMs: number }
  | ({ readonly kind: 'refuse' } & Refusal);

/**
 * Picks a worker ID among `candidates`: at random among the free ones whose ceiling is behind the clock, so that racers
 * spread out; else the lowest ceiling is waited for, up to 35 s. Candidates without a ceiling are the caller's fault.
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

  const behind = usable.filter(({ waitMs }) => waitMs === 0);
  const picked = behind[Math.floor(random() * behind.length)];
  if (picked) return { kind: 'take', workerId: picked.workerId, ceiling: picked.ceiling };

  const lowest = usable.reduce((low, next) => (next.waitMs < low.waitMs ? next : low));
  if (lowest.waitMs > MAX_CEILING_WAIT_MS) {
    return { kind: 'refuse', code: 'ALL_CEILINGS_AHEAD', message: ceilingsAhead(lowest.waitMs) };
  }
  return { kind: 'wait', workerId: lowest.workerId, waitMs: lowest.waitMs };
}

/** Why nothing can be taken although the clock should have reached a ceiling by now. */
export function ceilingsAhead(leadMs: number): string {
  return `every free worker ID is reserved for at least ${leadMs} ms beyond this machine's clock, so the clock is behind: check NTP`;
}

/** So many living owners must agree that our clock is off: the one other worker there is may be the one that is wrong. */
const MIN_OWNERS = 2;

/**
 * Looks, before a worker ID is claimed, whether our clock is where everybody else's is: a claim by a clock that is far
 * ahead would put the ceiling out of reach of whoever comes next. Either of two can refuse:
 *
 * - the median of the brokers that answer now, to half of what a term bears;
 * - the median of the living owners' ceilings, if there are two owners. A ceiling tells its owner's clock roughly: it is
 *   raised ahead of it, and by the time that the owner's lease runs out it lies behind. No clock that is right differs
 *   by more than the longest wait for a ceiling.
 *
 * Rejects when no broker answers: then there is nothing to compare with.
 */
async function checkClock(settings: IdentitySettings, snapshot: Snapshot): Promise<Refusal | undefined> {
  const samples = (await settings.sampleBrokerClocks?.()) ?? [];
  const { reading, verdict } = settings.readClock();
  if (verdict.kind === 'eject') return refusalOf(verdict);
  const leads = ownersLeads(snapshot, settings.layout, reading.wall);
  const owners = leads.length < MIN_OWNERS ? undefined : medianInterval(leads);
  const off = driftAtStart(samples) ?? clockOff(owners, 0, 'the other workers');
  if (off === undefined) return undefined;
  return { code: off.reason, message: `${off.detail}: no worker ID is claimed; check NTP on this machine` };
}

/** The choice, once our clock has been compared where a worker ID is there to be claimed; rejects as checkClock does. */
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

/** For each living owner the interval in which our lead over its clock lies. */
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

/** Owners this young at one address may be what a crash loop left behind; the first few are taken for company. */
const RECENT_MS = 60_000;
const TOLERATED_RECENT = 3;
const DELAY_EACH_MS = 1_000;
const MAX_DELAY_MS = 30_000;

/**
 * How long a process that has just started holds back, in milliseconds. A process that crashes after each acquire leaves
 * a worker ID taken for a lease's time; by waiting a second for each such leftover it can't eat up the pool.
 */
export function startDelayMs(snapshot: Snapshot, workerIp: string, now: WallMs): number {
  const leftovers = [...snapshot.owners.values()].filter((owner) => isRecent(owner, workerIp, now)).length;
  return Math.min(MAX_DELAY_MS, Math.max(0, leftovers - TOLERATED_RECENT) * DELAY_EACH_MS);
}

/** A record that can't be read tells nothing, and nothing but this delay hangs on it. */
function isRecent(owner: KeyValue, workerIp: string, now: WallMs): boolean {
  try {
    const record = decodeLeaseRecord(owner.value);
    return record.assignedWorkerIp === workerIp && Math.abs(now - record.grantedAtMs) < RECENT_MS;
  } catch {
    return false;
  }
}
