import type { Verdict } from '../core/clock-guard.ts';
import { authorityMs, MAX_CEILING_WAIT_MS } from '../core/reservation.ts';
import { elapsedMs, type Reading } from '../core/units.ts';
import { describeError, IdallocError } from '../errors.ts';
import { ceilingsAhead, chooseWorkerId, startDelayMs } from './choose.ts';
import {
  asRetryable,
  candidatesOf,
  lossCode,
  operatorsCode,
  raiseAndReadBack,
  readClaim,
  readNamespace,
  requireInPool,
  revokeQuietly,
  sendClaim,
  sendIgnoringResponse,
  withWitness,
} from './protocol.ts';
import {
  type AcquireOutcome,
  type Authority,
  type HeartbeatOutcome,
  type IdentitySettings,
  type IdentityState,
  type Mode,
  NOT_ACQUIRED,
  PAUSED,
  type Refusal,
  refusalFor,
  SILENT_SINCE_PAUSE,
} from './state.ts';
import { type Attempt, blockedReason, planAttempt, planSwap, readBack, type Term, termOf, withSwap } from './term.ts';

const STOPPED = { kind: 'stopped' } as const;

/**
 * The identity of this process: a worker ID, the fence of its term, and a reservation of time.
 *
 *   none -> acquiring -> held <-> suspended -> lost -> none
 *
 * none:      nothing may be used; `refusal` says why. An attempt with an unknown outcome may be left over: the next
 *            acquire reads its outcome before anything else.
 * acquiring: looking for a worker ID, waiting for a ceiling, or claiming one.
 * held:      allocation is allowed until the own deadline.
 * suspended: the own deadline has passed, the reservation is used up, the process was paused, or the clock jumped. A
 *            heartbeat leads back to held if the worker ID is still ours and the next reservation has its witness.
 * lost:      etcd shows that another process held, or could have held, the worker ID; the reservation is discarded.
 *
 * `release` leads from any mode to none. It and a loss increment `#turn`, so a step still in flight finds its turn over
 * and changes nothing. There are no timers here: the caller runs one step at a time, and a missed deadline still
 * refuses, because `authority` computes it.
 */
export class Identity {
  readonly #settings: IdentitySettings;
  #mode: Mode = 'none';
  #refusal: Refusal = NOT_ACQUIRED;
  #turn = 0;
  #busy = false;
  #attempt: Attempt | undefined;
  #term: Term | undefined;
  #waitingSince: Reading | undefined;
  /** How long this process waits at its start, counted from its first read of the namespace. */
  #startDelay: { readonly began: Reading; readonly delayMs: number } | undefined;
  /** A heartbeat sent before this moment proves nothing: the process was paused after it. */
  #provenFromMs = Number.NEGATIVE_INFINITY;

  /** Throws CONFIG_INVALID for a static worker ID outside the pool. */
  constructor(settings: IdentitySettings) {
    requireInPool(settings);
    this.#settings = settings;
  }

  get state(): IdentityState {
    const term = this.#term && { workerId: this.#term.workerId, fence: this.#term.fence };
    return { mode: this.#mode, ...(this.#mode === 'held' ? {} : { refusal: this.#refusal }), ...term };
  }

  /**
   * The authority to allocate at `now`; synchronous and cheap. Refuses after the own deadline (refuseAfterMs, or the
   * TTL less a margin, counted from before the last successful keep-alive was sent) and after the end of the
   * reservation.
   */
  authority(now: Reading): Authority {
    const term = this.#term;
    this.check(now);
    if (!term || this.#mode !== 'held') return { ok: false, ...this.#refusal };
    return { ok: true, workerId: term.workerId, fence: term.fence, reservation: term.reservation };
  }

  /** Milliseconds until the own deadline; 0 when no worker ID is held. */
  remainingMs(now: Reading): number {
    return this.#term ? Math.max(0, authorityMs(this.#settings.timing, this.#term.sent, now)) : 0;
  }

  /**
   * Suspends a term that can't allocate at `now`, even if no request comes. An unconfirmed lease is named first.
   */
  check(now: Reading): void {
    const judged = this.#mode === 'held' || this.#refusal.code === 'RESERVATION_EXHAUSTED';
    const refusal = judged && this.#term && blockedReason(this.#settings, this.#term, now);
    if (refusal) this.#setMode('suspended', refusal);
  }

  /** The process was paused until `now`: only a heartbeat sent after it can prove that the worker ID is still held. */
  paused(now: Reading): void {
    this.#provenFromMs = now.mono;
    if (this.#mode === 'held') this.#setMode('suspended', PAUSED);
  }

  /** One attempt to become the owner of a worker ID. Rejects only with NAMESPACE_MISMATCH and NAMESPACE_DAMAGED. */
  async acquire(): Promise<AcquireOutcome> {
    if (this.#busy || this.#term) return STOPPED;
    const turn = this.#turn;
    return await this.#runExclusively(async () => {
      this.#setMode('acquiring', this.#refusal);
      try {
        return (await this.#resolveAttempt(turn)) ?? (await this.#attemptOne(turn));
      } catch (error) {
        return await this.#abandon(turn, error);
      }
    });
  }

  /**
   * One keep-alive and one raise of the ceiling, each with a read. The own deadline restarts only when etcd shows that
   * the worker ID and the ceiling are ours, and counts from before the keep-alive was sent. Never rejects for an etcd
   * failure; a damaged namespace is a loss here and makes the next acquire reject.
   */
  async heartbeat(): Promise<HeartbeatOutcome> {
    const term = this.#term;
    if (this.#busy || !term) return STOPPED;
    const turn = this.#turn;
    return await this.#runExclusively(async () => {
      const { reading: sent, verdict } = this.#settings.readClock();
      if (verdict.kind === 'eject') return await this.#eject(verdict);
      this.check(sent);
      try {
        return await this.#renew(term, sent, verdict.kind === 'steady', turn);
      } catch (error) {
        const code = lossCode(error);
        if (code !== undefined) return await this.#lose(turn, describeError(error), code);
        const failure = asRetryable(error);
        if (turn === this.#turn) this.#blameEtcd(sent);
        return { kind: 'failed', error: failure };
      }
    });
  }

  /** Revokes the leases; authority is refused before the first await. True when etcd has confirmed it. */
  async release(refusal: Refusal = NOT_ACQUIRED): Promise<boolean> {
    const leases = [this.#term?.leaseId, this.#attempt?.leaseId].filter((leaseId) => leaseId !== undefined);
    this.#turn += 1;
    this.#term = undefined;
    this.#attempt = undefined;
    this.#waitingSince = undefined;
    this.#setMode('none', refusal);
    const revoked = await Promise.all(leases.map((leaseId) => revokeQuietly(this.#settings, leaseId)));
    return revoked.every(Boolean);
  }

  async #attemptOne(turn: number): Promise<AcquireOutcome> {
    const { namespace, snapshot } = await readNamespace(this.#settings);
    if (turn !== this.#turn) return STOPPED;
    const { reading, verdict } = this.#settings.readClock();
    if (verdict.kind === 'eject') return this.#refuse(refusalFor(verdict));
    if (verdict.kind === 'wait') return { kind: 'waiting', waitMs: verdict.untilWall - reading.wall };
    this.#startDelay ??= { began: reading, delayMs: startDelayMs(snapshot, this.#settings.workerIp, reading.wall) };
    const heldBackMs = this.#startDelay.delayMs - elapsedMs(this.#startDelay.began, reading);
    if (heldBackMs > 0) return { kind: 'waiting', waitMs: heldBackMs };
    const choice = await chooseWorkerId(this.#settings, snapshot, candidatesOf(this.#settings), reading.wall);
    if (turn !== this.#turn) return STOPPED;
    if (choice.kind === 'refuse') return this.#refuse({ code: choice.code, message: choice.message });
    if (choice.kind === 'wait') return this.#wait(choice.waitMs, reading);
    this.#waitingSince = undefined;
    const attempt = planAttempt(this.#settings, namespace, choice.workerId, choice.ceiling, reading);
    this.#attempt = attempt;
    await this.#settings.etcd.grantLease(attempt.leaseId, this.#settings.timing.ttlMs / 1000);
    if (turn !== this.#turn) return await this.#revokeStale(attempt);
    const error = await sendIgnoringResponse(this.#settings, sendClaim(this.#settings, attempt));
    const outcome = await this.#resolveAttempt(turn);
    if (outcome === undefined && error?.code === 'ETCD_REFUSED') throw error;
    return outcome ?? { kind: 'raced' };
  }

  /** Released while a call was in flight, which may have taken effect after the revocation: revokes again. */
  async #revokeStale(attempt: Attempt): Promise<AcquireOutcome> {
    await revokeQuietly(this.#settings, attempt.leaseId);
    return STOPPED;
  }

  /**
   * Reads the outcome of the attempt; undefined when none is left. Without an answer it throws and keeps the attempt.
   */
  async #resolveAttempt(turn: number): Promise<AcquireOutcome | undefined> {
    if (turn !== this.#turn) return STOPPED;
    const attempt = this.#attempt;
    if (!attempt) return undefined;
    const { owner, ceiling } = await readClaim(this.#settings, attempt.workerId);
    if (turn !== this.#turn) return await this.#revokeStale(attempt);
    const claimed = termOf(attempt, owner, ceiling);
    if (!claimed) {
      this.#attempt = undefined;
      await revokeQuietly(this.#settings, attempt.leaseId);
      return undefined;
    }
    this.#attempt = { ...attempt, silentWrites: attempt.silentWrites + 1 };
    const term = await withWitness(this.#settings, claimed);
    if (turn !== this.#turn) return STOPPED;
    this.#attempt = undefined;
    this.#install(term);
    this.#settings.log('info', 'worker ID acquired', { workerId: term.workerId, fence: String(term.fence) });
    return { kind: 'held' };
  }

  async #renew(term: Term, sent: Reading, steady: boolean, turn: number): Promise<HeartbeatOutcome> {
    // In parallel, so that a slow etcd costs the time of one answer against the deadline, not the sum of both.
    const [{ ttlSeconds }, claim] = await Promise.all([
      this.#settings.etcd.keepAlive(term.leaseId),
      readClaim(this.#settings, term.workerId),
    ]);
    if (turn !== this.#turn) return STOPPED;
    if (ttlSeconds <= 0) return await this.#lose(turn, 'the lease expired or was revoked');
    const found = readBack(term, claim.owner, claim.ceiling);
    if (found.kind === 'lost') return await this.#lose(turn, found.why);
    const renewed = { ...found.term, sent };
    // A suspended term also waits for its raise: its reservation may be used up.
    if (this.#mode === 'held') this.#install(renewed);
    return await this.#raiseCeiling(renewed, steady, turn);
  }

  async #raiseCeiling(term: Term, steady: boolean, turn: number): Promise<HeartbeatOutcome> {
    const swap = steady ? planSwap(this.#settings, term, term.sent) : undefined;
    const attempted = swap ? withSwap(term, swap) : term;
    this.#term = attempted;
    const found = await raiseAndReadBack(this.#settings, attempted, swap);
    if (turn !== this.#turn) return STOPPED;
    if (found.kind === 'lost') return await this.#lose(turn, found.why);
    this.#install({ ...found.term, silentWrites: found.term.silentWrites + 1 }); // until the topic responds
    const usable = await withWitness(this.#settings, found.term);
    if (turn !== this.#turn) return STOPPED;
    this.#install(usable);
    return { kind: 'held' };
  }

  #install(term: Term): void {
    this.#term = term;
    const { reading, verdict } = this.#settings.readClock();
    // After a clock jump the deadline would seem to have passed, or to be further away: report the clock instead.
    const jumped = verdict.kind === 'eject' ? refusalFor(verdict) : undefined;
    const proven = term.sent.mono >= this.#provenFromMs;
    const refusal = proven ? (jumped ?? blockedReason(this.#settings, term, reading)) : PAUSED;
    this.#setMode(refusal ? 'suspended' : 'held', refusal ?? NOT_ACQUIRED);
  }

  /**
   * A heartbeat sent at `sent` has failed. The pause of a process is over once it was sent: what keeps the term
   * suspended from then on is etcd, whose outage may outlast the pause by hours.
   */
  #blameEtcd(sent: Reading): void {
    if (this.#refusal === PAUSED && sent.mono >= this.#provenFromMs) this.#setMode('suspended', SILENT_SINCE_PAUSE);
  }

  async #lose(turn: number, why: string, code: Refusal['code'] = 'LEASE_LOST'): Promise<HeartbeatOutcome> {
    const term = this.#term;
    if (turn !== this.#turn || !term) return STOPPED;
    const refusal: Refusal = { code, message: `worker ID ${term.workerId} is lost: ${why}` };
    this.#settings.log('warn', refusal.message, { fence: String(term.fence) });
    this.#turn += 1;
    this.#term = undefined;
    this.#setMode('lost', refusal);
    await revokeQuietly(this.#settings, term.leaseId);
    if (this.#mode === 'lost') this.#setMode('none', refusal);
    return { kind: 'lost', ...refusal };
  }

  async #eject(verdict: Extract<Verdict, { kind: 'eject' }>): Promise<HeartbeatOutcome> {
    const refusal = refusalFor(verdict);
    await this.release(refusal);
    return { kind: 'ejected', ...refusal };
  }

  /** After a failed acquire. A retryable error keeps the attempt: the next acquire reads its outcome. */
  async #abandon(turn: number, error: unknown): Promise<AcquireOutcome> {
    const code = operatorsCode(error);
    const set = code === undefined ? undefined : ({ code, message: (error as IdallocError).message } as const);
    if (turn !== this.#turn) return set ? STOPPED : { kind: 'failed', error: asRetryable(error) };
    const attempt = this.#attempt;
    this.#setMode('none', set ?? { code: 'NO_IDENTITY', message: describeError(error) });
    if (attempt && (lossCode(error) || !(error instanceof IdallocError && error.retryable))) {
      this.#attempt = undefined;
      await revokeQuietly(this.#settings, attempt.leaseId);
    }
    return set ? { kind: 'refused', ...set } : { kind: 'failed', error: asRetryable(error) };
  }

  /**
   * The clock approaches the lowest ceiling; if it is not there within the longest possible wait, the clock is wrong.
   */
  #wait(waitMs: number, now: Reading): AcquireOutcome {
    this.#waitingSince ??= now;
    if (elapsedMs(this.#waitingSince, now) <= MAX_CEILING_WAIT_MS) return { kind: 'waiting', waitMs };
    return this.#refuse({ code: 'ALL_CEILINGS_AHEAD', message: ceilingsAhead(waitMs) });
  }

  #refuse(refusal: Refusal): AcquireOutcome {
    this.#setMode('none', refusal);
    return { kind: 'refused', ...refusal };
  }

  async #runExclusively<R>(run: () => Promise<R>): Promise<R> {
    this.#busy = true;
    try {
      return await run();
    } finally {
      this.#busy = false;
    }
  }

  /** The only setter of the mode. */
  #setMode(mode: Mode, refusal: Refusal): void {
    const same = this.#mode === mode && (mode === 'held' || this.#refusal.code === refusal.code);
    this.#mode = mode;
    this.#refusal = refusal;
    if (!same) this.#settings.onChange?.(this.state);
  }
}
