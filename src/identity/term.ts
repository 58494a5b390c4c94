/**
 * A lease is not exclusion.
 *
 * A worker's claim to its worker ID is an owner key in etcd under a lease. While the lease lives nobody else can claim
 * the ID, and it is tempting to read that as: while I hold the lease, I am alone. But between the check and the use any
 * time may pass. A process is paused for a minute, its lease ends, another worker claims the ID, and the first one goes
 * on in the next line as if nothing had happened. No check in this process can exclude that, however late it is made.
 *
 * So a term never asks "am I alone?". It asks "which ticks did I win?", and etcd's answer to that can't become wrong
 * later. Each acquire and each heartbeat raises the ceiling by compare-and-swap, with a nonce that is used once, and
 * the ticks between the old and the new ceiling are the term's for ever (`core/reservation`). The lease remains what it
 * is good for: it tells others when the ID is free.
 *
 * The trap is the answer that doesn't come. A swap whose call fails may have taken effect, may not, or may take effect
 * in a minute; etcd's client retries inside, so even "compare failed" may mean that our own first try had won. Hence
 * the outcome of a call counts for nothing. After each one, key and ceiling are read back, and the reservation is what
 * the read shows: it is ours if the ceiling has one of our nonces, on top of the revision that it was compared with,
 * under the owner key that we created. A swap without an answer stays on the list of those that may still win, until
 * the ceiling's revision has passed the one that it compares: from then on it can't.
 *
 * That also decides what becomes of a term that has not reached etcd for a while. Beyond its own deadline it allocates
 * nothing: that is checked in the very turn in which IDs are taken, by whichever clock advanced more. It is suspended.
 * If etcd then still shows our fence and our ceiling, nobody was there in between, and the same term goes on. Anything
 * else means that it is lost: the reservation is forgotten, and a new worker ID is acquired.
 *
 * One memory could be rolled back: an etcd that is restored from a backup shows an old ceiling, and would give out the
 * same ticks again. So a reservation is used only once a second system, the witness topic in Kafka, has it as well.
 */
import type { WitnessName } from '../codec/witness.ts';
import { toTicks } from '../core/layout.ts';
import { authorityMs, nextCeiling, type Reservation } from '../core/reservation.ts';
import { elapsedMs, type Reading, type Ticks } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import type { KeyValue } from './identity-ports.ts';
import { namespaceDamaged, readCeiling, type StoredCeiling } from './keys.ts';
import type { Namespace } from './namespace.ts';
import type { IdentitySettings, Refusal } from './state.ts';

/** One attempt to raise a ceiling; it takes effect only while the ceiling's mod revision is the compared one. */
export interface Swap {
  readonly nonce: string;
  readonly ticks: Ticks;
  readonly comparedRevision: bigint;
}

/** An acquire that was sent: what is needed to recognise it in etcd and to abandon it. */
export interface Attempt {
  /** The namespace as it was read for this attempt; it must still be the same when a write of ours takes effect. */
  readonly namespace: Namespace;
  readonly workerId: number;
  readonly leaseId: bigint;
  /** Both clocks before the lease was requested: the own deadline counts from here. */
  readonly sent: Reading;
  /** The ceiling that was found: our reservation begins here, never at our own clock. */
  readonly from: Ticks;
  readonly swap: Swap;
  /** Writes of witnesses that had no response so far; the term takes the count over. */
  readonly silentWrites: number;
}

/**
 * A worker ID held under one fence. Immutable; each response from etcd creates the next value.
 *
 * stored:      the ceiling that we know to be ours. While etcd shows it, or one of the unanswered swaps, under our
 *              fence, no other process has held the worker ID in between.
 * unanswered:  the newest swaps on top of `stored` that may still take effect. One that is no longer among them costs
 *              the term if it takes effect after all, since it then looks like another process's, and no ID.
 * reservation: the ticks up to the part of `stored` that is witnessed; only these are used.
 * superseded:  witnesses of earlier terms and under earlier keys, which ours replaces once it was read together with
 *              them.
 * silentWrites: writes of witnesses without a response, from the claim on: each may still land.
 */
export interface Term {
  readonly namespace: Namespace;
  readonly workerId: number;
  readonly leaseId: bigint;
  /** The create revision of the owner key. */
  readonly fence: bigint;
  /** Both clocks before the last keep-alive was sent that succeeded and was read back as ours. */
  readonly sent: Reading;
  readonly stored: StoredCeiling;
  readonly unanswered: readonly Swap[];
  readonly reservation: Reservation;
  readonly superseded: readonly WitnessName[];
  readonly silentWrites: number;
}

/** So many swaps take about a minute, and a call ends within seconds. */
const MAX_UNANSWERED = 64;

type Planning = Pick<IdentitySettings, 'layout' | 'timing' | 'newNonce' | 'newLeaseId'>;

/** The attempt to send at `sent`. Throws NO_IDENTITY when the ceiling can't be raised by a whole tick yet. */
export function planAttempt(
  settings: Planning,
  namespace: Namespace,
  workerId: number,
  ceiling: StoredCeiling,
  sent: Reading,
): Attempt {
  const { layout, timing, newNonce, newLeaseId } = settings;
  const raised = nextCeiling(layout, sent.wall, timing.reserveMs, ceiling.ticks);
  if (raised === undefined) {
    throw new IdallocError('NO_IDENTITY', `the ceiling of worker ID ${workerId} can't be raised by a whole tick yet`);
  }
  const swap: Swap = { nonce: newNonce(), ticks: raised, comparedRevision: ceiling.modRevision };
  return { namespace, workerId, leaseId: newLeaseId(), sent, from: ceiling.ticks, swap, silentWrites: 0 };
}

/** The next raise of our ceiling, based on a keep-alive sent at `sent`; undefined when there is nothing to raise. */
export function planSwap(settings: Planning, term: Term, sent: Reading): Swap | undefined {
  const { layout, timing, newNonce } = settings;
  const raised = nextCeiling(layout, sent.wall, timing.reserveMs, term.stored.ticks);
  if (raised === undefined) return undefined;
  return { nonce: newNonce(), ticks: raised, comparedRevision: term.stored.modRevision };
}

/** The term with a swap that is sent now: it may take effect at any time from then on. */
export function withSwap(term: Term, swap: Swap): Term {
  return { ...term, unanswered: [...term.unanswered, swap].slice(-MAX_UNANSWERED) };
}

/** The term, read back after the answer to a swap: what that did not do by then, it never does. */
export function withoutSwap(term: Term, swap: Swap): Term {
  return { ...term, unanswered: term.unanswered.filter((one) => one !== swap) };
}

/**
 * The outcome of an acquire as a read shows it, whatever its answer was: the term that it started, or undefined when it
 * has not taken effect. It is ours only if the ceiling has our nonce and the owner key, created with it, has our lease.
 * A missing ceiling means that it is not; the next acquire finds out why.
 */
export function termOf(attempt: Attempt, owner: KeyValue | undefined, ceiling: KeyValue | undefined): Term | undefined {
  if (!ceiling) return undefined;
  const stored = readCeiling(ceiling);
  const ours =
    stored.nonce === attempt.swap.nonce &&
    stored.ticks === attempt.swap.ticks &&
    owner?.leaseId === attempt.leaseId &&
    owner.createRevision === stored.modRevision;
  if (!ours) return undefined;
  return {
    namespace: attempt.namespace,
    workerId: attempt.workerId,
    leaseId: attempt.leaseId,
    fence: owner.createRevision,
    sent: attempt.sent,
    stored,
    unanswered: [],
    reservation: { from: attempt.from, to: attempt.from },
    superseded: [],
    silentWrites: attempt.silentWrites,
  };
}

export type ReadBack = { readonly kind: 'ours'; readonly term: Term } | { readonly kind: 'lost'; readonly why: string };

/**
 * The state of a term as a read shows it, whatever the answers to earlier swaps were. It is ours only if the owner key
 * is the one we created and the ceiling is our last one or an unanswered swap on top of it. Throws NAMESPACE_DAMAGED
 * when the ceiling is missing or unreadable.
 */
export function readBack(term: Term, owner: KeyValue | undefined, ceiling: KeyValue | undefined): ReadBack {
  if (!ceiling) throw namespaceDamaged(`the ceiling of worker ID ${term.workerId} is missing`);
  const now = readCeiling(ceiling);
  if (owner?.createRevision !== term.fence) {
    return { kind: 'lost', why: owner ? 'another worker owns the worker ID' : 'the owner key is gone' };
  }
  if (now.modRevision === term.stored.modRevision) {
    const same = now.nonce === term.stored.nonce && now.ticks === term.stored.ticks;
    return same
      ? { kind: 'ours', term }
      : { kind: 'lost', why: 'the stored ceiling is not the one that this worker wrote' };
  }
  const won = term.unanswered.find(({ nonce }) => nonce === now.nonce);
  if (!won || won.ticks !== now.ticks || won.comparedRevision !== term.stored.modRevision) {
    return { kind: 'lost', why: 'another process raised the ceiling' };
  }
  // The ceiling's revision is past what any earlier swap compared: none of them can take effect any more.
  return { kind: 'ours', term: { ...term, stored: now, unanswered: [] } };
}

/** Why a term can't allocate at `now`; undefined if it can. The allocator reports the end of the layout. */
export function blockedReason(
  { layout, timing }: Pick<IdentitySettings, 'layout' | 'timing'>,
  { sent, reservation }: Term,
  now: Reading,
): Refusal | undefined {
  if (authorityMs(timing, sent, now) <= 0) {
    const silentMs = Math.round(elapsedMs(sent, now));
    const message = `etcd has not confirmed the lease for ${silentMs} ms: allocation waits until it does; check etcd's health`;
    return { code: 'LEASE_SUSPENDED', message };
  }
  if (reservation.to >= layout.endTicks || toTicks(layout, now.wall) < reservation.to) return undefined;
  const message =
    'the next reservation is not confirmed yet, by etcd and in the witness topic: allocation waits until it is; check the brokers and etcd';
  return { code: 'RESERVATION_EXHAUSTED', message };
}
