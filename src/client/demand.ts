export interface DemandOptions {
  /** How long the buffer must last when no IDs arrive. */
  readonly coverSeconds: number;
  /** The minimum rate to be ready for, in IDs per second. */
  readonly idsPerSecond: number;
  /** The minimum rate to be ready for while nobody takes IDs; at most `idsPerSecond`. */
  readonly idleIdsPerSecond: number;
  readonly maxBuffered: number;
}

/** The window over which use is measured has this many slices. */
const SLICES = 10;
/** A peak decays with this half-life. */
const HALF_LIFE_MS = 60_000;
/** Without a call for IDs in this time, the buffer is idle. */
const IDLE_MS = 60_000;
/** Longer waits for a reply count as outages, which coverSeconds covers. */
const MAX_LEAD_MS = 2_000;
const LEAD_DECAY = 0.9;

interface Slice {
  readonly startMs: number;
  taken: number;
  /** IDs of its largest call. */
  largest: number;
}

/**
 * How many IDs the buffer should hold, from how fast they are used. It rises with the rate immediately and falls
 * slowly.
 *
 *   rate           = (IDs taken within coverSeconds - those of the largest call among them) / coverSeconds
 *   low-water mark = rate x (coverSeconds + usual latency of a reply);  a refill fills up to twice that
 *
 * The mark is about what the last coverSeconds took, so a burst is covered if it comes again. One call is no rate: an
 * import that takes 100,000 IDs once a night leaves the buffer as it was.
 *
 * An age limit makes an idle buffer cost as much as a busy one, since its IDs are thrown away in time. So its minimum is
 * lower, though not below the largest burst, until the next call.
 */
export class Demand {
  readonly #options: DemandOptions;
  /** The last one is still being filled. */
  readonly #slices: Slice[];
  #rate: number;
  #leadMs = 0;
  #notedMs: number;
  #taken = 0;
  #largest = 0;
  /** When IDs were last taken, or lacking. */
  #usedMs: number;
  /** The most IDs that were taken between two notes, or that a call lacked. */
  #burst = 0;
  #hasFailed = false;

  constructor(options: DemandOptions, nowMs: number) {
    this.#options = options;
    this.#rate = options.idsPerSecond;
    this.#notedMs = nowMs;
    this.#usedMs = nowMs;
    this.#slices = [{ startMs: nowMs, taken: 0, largest: 0 }];
  }

  /** IDs per second to be ready for. */
  get rate(): number {
    return this.#rate;
  }

  /** A call took this many IDs. Calls for a single one need not be told. */
  took(count: number): void {
    this.#largest = Math.max(this.#largest, count);
  }

  /** A call for this many IDs failed, as the buffer had too few. */
  lacked(count: number): void {
    this.#burst = Math.max(this.#burst, count);
    this.#hasFailed = true;
  }

  /** Whether nobody has called for IDs in the last minute before the last note. */
  get isIdle(): boolean {
    return this.#notedMs - this.#usedMs >= IDLE_MS;
  }

  /** Updates the rate; `taken` is the total number of IDs taken so far. */
  note(nowMs: number, taken: number): void {
    this.#burst = Math.max(this.#burst, taken - this.#taken);
    if (taken > this.#taken || this.#hasFailed) this.#usedMs = nowMs;
    this.#hasFailed = false;
    const measured = this.#measured(nowMs, taken);
    const decayed = this.#rate * 0.5 ** ((nowMs - this.#notedMs) / HALF_LIFE_MS);
    this.#notedMs = nowMs;
    this.#rate = Math.max(measured, decayed, this.#least);
  }

  /** Updates the usual latency of a reply. */
  replied(latencyMs: number): void {
    this.#leadMs = Math.min(MAX_LEAD_MS, Math.max(latencyMs, this.#leadMs * LEAD_DECAY));
  }

  /** The low-water mark: at this many IDs or fewer, more are requested. */
  get low(): number {
    const { coverSeconds, maxBuffered } = this.#options;
    const wanted = Math.ceil(this.#rate * (coverSeconds + this.#leadMs / 1_000));
    return Math.max(1, Math.min(wanted, Math.floor(maxBuffered / 2)));
  }

  /** As many as a refill brings: the second buffer behind the first. */
  get full(): number {
    return 2 * this.low;
  }

  get #least(): number {
    const { idsPerSecond, idleIdsPerSecond, coverSeconds } = this.#options;
    if (!this.isIdle) return idsPerSecond;
    return Math.min(idsPerSecond, Math.max(idleIdsPerSecond, this.#burst / coverSeconds));
  }

  #measured(nowMs: number, taken: number): number {
    const coverMs = 1_000 * this.#options.coverSeconds;
    const slices = this.#slices;
    const last = slices.at(-1) as Slice; // there is always one
    last.taken += taken - this.#taken;
    last.largest = Math.max(last.largest, this.#largest);
    this.#taken = taken;
    this.#largest = 0;
    while (slices[1] !== undefined && slices[1].startMs <= nowMs - coverMs) slices.shift();
    const [{ startMs: sinceMs }] = slices as [Slice];
    if (nowMs - last.startMs >= coverMs / SLICES) slices.push({ startMs: nowMs, taken: 0, largest: 0 });
    const total = slices.reduce((sum, slice) => sum + slice.taken, 0);
    const largest = slices.reduce((most, slice) => Math.max(most, slice.largest), 0);
    return (1_000 * (total - largest)) / Math.max(coverMs, nowMs - sinceMs);
  }
}
