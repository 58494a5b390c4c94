import type { BatchControl } from './batch.ts';
import { type Deferrals, type DeferredLaneName, DeferredQueue, type OffsetRange } from './deferred.ts';
import { InOrder } from './in-order.ts';
import { type LaneOptions, RetryingLane } from './lane.ts';
import { PartLanes } from './part-lanes.ts';
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
  /** The most records from memory that are served at a time; those that arrive meanwhile are served with the next ones. */
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

/** While the replies of one part of numbers are on their way, the next one is decided; and no more, since all that waits goes into it. */
const NUMBERS_AT_ONCE = 2;

/**
 * The requests of one partition that let others go first: a cursor of its own over the partition. The first ones wait in memory;
 * when there are too many, the lane reads the partition again from the first that is not there, and serves only its own.
 */
export class DeferredLane {
  readonly queue: DeferredQueue;
  readonly #options: DeferredLaneOptions;
  readonly #lane: RetryingLane;
  readonly #control: BatchControl;
  readonly #parts: PartLanes;
  /** Everything below has been begun. */
  #begun = 0;
  readonly #answered = new InOrder((next) => this.#passed(next));
  #ended = false;
  #isServing = false;
  #reading: LaneReading | undefined;

  constructor(options: DeferredLaneOptions) {
    const { name, monotonicMs, unread, deferrals } = options;
    this.#options = options;
    this.#lane = new RetryingLane(options);
    this.#parts = new PartLanes({ ...options, partsAtOnce: NUMBERS_AT_ONCE });
    this.queue = new DeferredQueue(() => void this.serve(), monotonicMs, unread);
    this.#control = {
      lane: name,
      isCurrent: () => this.#lane.isCurrent,
      resolved: (offset) => this.#begins(offset + 1)(),
      ...(name === 'numbers' && { answer: (offset, answer) => this.#answer(offset, answer) }),
      ...(deferrals !== undefined && { deferrals }),
      prepared: new Map(),
    };
  }

  /** Resolves when the parts in progress have ended. */
  get settled(): Promise<unknown> {
    return Promise.all([this.#lane.settled, this.#parts.settled]);
  }

  /** Starts no further part. */
  pause(): void {
    this.#lane.pause();
    this.#parts.pause();
  }

  /** Resumes, and cuts short the pause after an error. */
  resume(): void {
    this.#lane.resume();
    this.#parts.resume();
  }

  end(): void {
    this.#ended = true;
    this.#lane.end();
    this.#parts.end();
    this.#reading?.stop();
  }

  /** Serves what is in memory, then reads the rest again; ends when nothing waits, or only for replies that are on their way. */
  async serve(): Promise<void> {
    if (this.#isServing) return;
    this.#isServing = true;
    const due = () => this.#from(this.queue.held).slice(0, this.#options.maxRecords);
    while (!this.#ended) {
      const { held, unread } = this.queue;
      if (due().length > 0) await this.#finish(due);
      else if (held.length === 0 && unread !== undefined) await this.#readAgain(unread.from);
      else break;
    }
    this.#isServing = false;
  }

  /** Those that were not begun yet. */
  #from(records: readonly RequestRecord[]): readonly RequestRecord[] {
    const at = records.findIndex(({ offset }) => offset >= this.#begun);
    return at < 0 ? [] : records.slice(at);
  }

  /** Answers a part. Resolves when it is decided and the one before it is answered, or the session has ended. */
  async #answer(offset: number, answer: (decided: () => void) => Promise<void>): Promise<void> {
    const done = this.#begins(offset + 1);
    const { promise: decided, resolve } = Promise.withResolvers<void>();
    await this.#parts.begin(() => answer(resolve).then(done));
    await Promise.race([decided, this.#parts.idle]);
  }

  /** Returns what to call when everything from the last such offset up to this one is answered. */
  #begins(until: number): () => void {
    this.#begun = Math.max(until, this.#begun);
    return this.#answered.add(until);
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
        const due = () => this.#from(records).filter(({ offset }) => isWithin(this.queue.unread, offset));
        const [first] = due();
        if (first !== undefined) this.queue.sawFirstUnread(first);
        const left = () => (this.#ended ? undefined : this.queue.unread);
        // Others may be deferred while the last ones are served. What lies behind the unread ones was not taken over yet.
        for (let unread = left(); unread !== undefined && unread.from < next; unread = left()) {
          if (due().length > 0) await this.#finish(due);
          else {
            this.#begins(Math.min(next, unread.until))();
            await this.#parts.idle;
          }
        }
        if (!this.#ended && this.queue.unread !== undefined) return;
        reading.stop();
        resolve();
      });
      this.#reading = reading;
    });
  }

  #passed(next: number): void {
    this.queue.answered(next);
    this.#options.onAnswered();
    void this.serve();
  }
}

function isWithin(range: OffsetRange | undefined, offset: number): boolean {
  return range !== undefined && offset >= range.from && offset < range.until;
}
