import type { BatchControl } from './batch.ts';
import { type Deferrals, type DeferredLaneName, DeferredQueue, type OffsetRange } from './deferred.ts';
import { type LaneOptions, RetryingLane } from './lanes.ts';
import type { RequestChunk, RequestRecord } from './ports.ts';

/** A partition that is being read. */
export interface LaneReading {
  /** Delivers nothing more. */
  stop(): void;
}

export interface DeferredLaneOptions extends LaneOptions {
  readonly name: DeferredLaneName;
  readonly monotonicMs: () => number;
  /** Where the requests are that an earlier session took over and did not answer. */
  readonly unread: OffsetRange | undefined;
  /**
   * The most records from memory that are served at a time; those that arrive meanwhile are served with the next ones.
   */
  readonly maxRecords: number;
  /** Where it leaves requests of other lanes. */
  readonly deferrals?: Deferrals | undefined;
  readonly serve: (records: readonly RequestRecord[], control: BatchControl) => Promise<void>;
  readonly readAgain: (
    name: DeferredLaneName,
    from: number,
    deliver: (chunk: RequestChunk) => Promise<void>,
  ) => LaneReading;
  /** More of its requests have been answered. */
  readonly onAnswered: () => void;
}

/**
 * The requests of one partition that let others go first: a cursor of its own over the partition. The first ones wait
 * in memory; when there are too many, the lane reads the partition again from the first that is not there, and serves
 * only its own.
 */
export class DeferredLane {
  readonly queue: DeferredQueue;
  readonly #options: DeferredLaneOptions;
  readonly #lane: RetryingLane;
  readonly #control: BatchControl;
  #ended = false;
  #isServing = false;
  #reading: LaneReading | undefined;

  constructor(options: DeferredLaneOptions) {
    const { name, monotonicMs, unread, deferrals } = options;
    this.#options = options;
    this.#lane = new RetryingLane(options);
    this.queue = new DeferredQueue(() => void this.serve(), monotonicMs, unread);
    this.#control = {
      lane: name,
      isCurrent: () => this.#lane.isCurrent,
      resolved: (offset) => this.#answered(offset + 1),
      ...(deferrals !== undefined && { deferrals }),
      prepared: new Map(),
    };
  }

  /** Resolves when the part in progress has ended. */
  get settled(): Promise<void> {
    return this.#lane.settled;
  }

  /** Starts no further part. */
  pause(): void {
    this.#lane.pause();
  }

  /** Resumes, and cuts short the pause after an error. */
  resume(): void {
    this.#lane.resume();
  }

  end(): void {
    this.#ended = true;
    this.#lane.end();
    this.#reading?.stop();
  }

  /** Serves what is in memory, then reads the rest again; ends when nothing waits. */
  async serve(): Promise<void> {
    if (this.#isServing) return;
    this.#isServing = true;
    while (!this.#ended && this.queue.first !== undefined) {
      const { held, unread } = this.queue;
      if (held.length > 0) await this.#finish(() => held.slice(0, this.#options.maxRecords));
      else if (unread !== undefined) await this.#readAgain(unread.from);
    }
    this.#isServing = false;
  }

  #finish(due: () => readonly RequestRecord[]): Promise<void> {
    return this.#lane.finish(
      () => due().length > 0,
      () => this.#options.serve(due(), this.#control),
    );
  }

  /** Resolves when the requests that are not in memory are answered, or the session has ended. */
  #readAgain(from: number): Promise<void> {
    return new Promise((resolve) => {
      const reading = this.#options.readAgain(this.#options.name, from, async ({ records, next }) => {
        const due = () => records.filter(({ offset }) => isWithin(this.queue.unread, offset));
        const [first] = due();
        if (first !== undefined) this.queue.sawFirstUnread(first);
        // Others may be deferred while the last ones are served.
        while (!this.#ended && due().length > 0) await this.#finish(due);
        if (!this.#ended) this.#answered(next);
        if (!this.#ended && this.queue.unread !== undefined) return;
        reading.stop();
        resolve();
      });
      this.#reading = reading;
    });
  }

  #answered(next: number): void {
    this.queue.answered(next);
    this.#options.onAnswered();
  }
}

function isWithin(range: OffsetRange | undefined, offset: number): boolean {
  return range !== undefined && offset >= range.from && offset < range.until;
}
