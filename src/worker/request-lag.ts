/** An end of the log, and when it was seen. */
interface LogEndSample {
  readonly end: number;
  readonly atMs: number;
}

export interface RequestLagOptions {
  /** The first offset that is not answered yet. */
  readonly next: number;
  readonly monotonicMs: () => number;
  readonly onChange: (records: number) => void;
}

/** A partition that is read gets a response at least this often, even if it has no records. */
const UNFETCHED_MS = 2_000;
/** Samples are at least a fetch's waiting time apart while no progress is made: 100 of them cover 25 s. */
const MAX_SAMPLES = 100;

/**
 * The lag of a request partition, computed from the responses to its fetches, without extra reads.
 *
 * A read-committed consumer gets nothing after an open transaction, however many records wait there. So the lag counts
 * up to the high watermark, which each response contains, not up to the last stable offset.
 *
 * The age is by the monotonic clock, since records may carry their senders' time. It counts from the first response
 * that showed the oldest unread record: it does not include time before this worker owned the partition. While nothing
 * can be fetched, requests may wait that are not known: then it counts from the last response.
 */
export class RequestLag {
  readonly #options: RequestLagOptions;
  /** Oldest first, each with a higher end than the one before. */
  readonly #samples: LogEndSample[] = [];
  #next: number;
  #fetchedMs: number;

  constructor(options: RequestLagOptions) {
    this.#options = options;
    this.#next = options.next;
    this.#fetchedMs = options.monotonicMs();
  }

  /** The log now ends at `end`. */
  fetched(end: number): void {
    this.#fetchedMs = this.#options.monotonicMs();
    if (end <= Math.max(this.#next, this.#samples.at(-1)?.end ?? 0)) return;
    // When full, merge with the last sample: the newest records then seem older than they are.
    const before = this.#samples.length < MAX_SAMPLES ? undefined : this.#samples.pop();
    this.#samples.push({ end, atMs: before?.atMs ?? this.#options.monotonicMs() });
    this.#options.onChange(this.records);
  }

  /** Everything below this offset has been answered. */
  progressed(next: number): void {
    this.#next = Math.max(this.#next, next);
    const left = this.#samples.findIndex(({ end }) => end > this.#next);
    this.#samples.splice(0, left === -1 ? this.#samples.length : left);
    this.#options.onChange(this.records);
  }

  /** Offsets between the last answered request and the end of the log; transaction markers may be among them. */
  get records(): number {
    return Math.max(0, (this.#samples.at(-1)?.end ?? 0) - this.#next);
  }

  /** How long the oldest unanswered record has waited, or may have; 0 when none waits. */
  get oldestMs(): number {
    const nowMs = this.#options.monotonicMs();
    const unfetchedMs = nowMs - this.#fetchedMs;
    const oldest = this.#samples[0];
    return Math.max(oldest === undefined ? 0 : nowMs - oldest.atMs, unfetchedMs < UNFETCHED_MS ? 0 : unfetchedMs);
  }
}
