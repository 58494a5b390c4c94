import type { Runtime } from '../async/runtime.ts';
import type { RequestPosition } from '../codec/request-position.ts';
import type { BatchControl } from './batch.ts';
import { DeferredQueue, type OffsetRange } from './deferred.ts';
import { InOrder } from './in-order.ts';
import { type LaneOptions, RetryingLane } from './lane.ts';
import { PartLanes } from './part-lanes.ts';
import type { RequestRecord } from './ports.ts';

/** Processes records of one partition: resolves parts as they are answered, rejects on a retryable error. */
export type RequestHandler = (
  partition: number,
  records: readonly RequestRecord[],
  control: BatchControl,
) => Promise<void>;

/** Records of one partition, in offset order. */
export interface RequestChunk {
  readonly records: readonly RequestRecord[];
  /** The next offset to read: after the last record, and after any transaction markers that follow it. */
  readonly next: number;
  /** Called when all of it is answered or deferred, and all before it. */
  readonly answered?: () => void;
}

export interface RequestSessionOptions extends LaneOptions {
  readonly partition: number;
  readonly handler: RequestHandler;
  readonly runtime: Pick<Runtime, 'schedule' | 'monotonicMs'>;
  readonly onProgress: (position: RequestPosition) => void;
  /** Reads the partition again from an offset, for the large requests there, until it is stopped. */
  readonly readAgain: (from: number, deliver: (chunk: RequestChunk) => Promise<void>) => Reading;
  /** Where reading begins: what is answered already. Undefined if nothing was ever committed. */
  readonly position?: RequestPosition | undefined;
}

/** A partition that is being read. */
interface Reading {
  /** Delivers nothing more. */
  stop(): void;
}

/**
 * One request partition for as long as this worker owns it, across rebalances that leave it here.
 *
 *   idle ──deliver──▶ working ──all begun──▶ idle
 *                     working ──error──▶ resting ──time is up, or the gate opens──▶ working
 *                     working ──gate closed──▶ waiting ──gate opens──▶ working
 *   any  ──end──▶ ended (final)
 *
 * One chunk is read at a time, and cut into parts in order. A few parts are answered side by side, so that one does not wait for
 * the replies of another; the next chunk is read as soon as its first part would have room. A part in progress when the gate closes
 * or the session ends is completed, since it may be decided already; no further part starts. Unanswered requests are
 * retried from memory, so an error never moves the read position, which passes a part when all before it are answered, too.
 *
 * Large requests and bulk are deferred to a second lane that runs in parallel, so they do not hold up the requests after them, in
 * later chunks as well. That is safe, because the order of the ledger decides, not that of the requests. The first ones wait
 * in memory; when there are too many, the lane reads the partition again from the first that is not there, and serves
 * only large ones. So the lanes are two cursors over one partition, and the position has both.
 */
export class RequestSession {
  readonly #options: RequestSessionOptions;
  readonly #lane: RetryingLane;
  readonly #partLanes: PartLanes;
  readonly #largeLane: RetryingLane;
  readonly #deferred: DeferredQueue;
  readonly #largeControl: BatchControl;
  #ended = false;
  /** Everything below has been begun or deferred. */
  #begun: number | undefined;
  readonly #answered = new InOrder((through) => this.#passed(through));
  /** Everything below has been answered or deferred. */
  #through: number | undefined;
  #position: RequestPosition | undefined;
  #isServingLarge = false;
  #reading: Reading | undefined;

  constructor(options: RequestSessionOptions) {
    const { position } = options;
    this.#options = options;
    this.#lane = new RetryingLane(options);
    this.#partLanes = new PartLanes(options);
    this.#largeLane = new RetryingLane(options);
    this.#begun = position?.small;
    this.#through = position?.small;
    this.#position = position;
    const unread =
      position && position.next < position.small ? { from: position.next, until: position.small } : undefined;
    this.#deferred = new DeferredQueue(() => void this.#serveLarge(), options.runtime.monotonicMs, unread);
    this.#largeControl = {
      isCurrent: () => this.#largeLane.isCurrent,
      resolved: (offset) => this.#largeAnswered(offset + 1),
      prepared: new Map(),
    };
    void this.#serveLarge();
  }

  get partition(): number {
    return this.#options.partition;
  }

  /** What to commit; undefined until something is known to be answered. */
  get position(): RequestPosition | undefined {
    return this.#position;
  }

  /** The unanswered large requests: how many, and the append time of the oldest (wall ms); undefined for none. */
  oldestLarge(): { readonly waiting: number; readonly sinceMs: number } | undefined {
    return this.#deferred.oldest;
  }

  /** Resolves when the parts in progress have ended. */
  get settled(): Promise<void> {
    const lanes = [this.#lane, this.#partLanes, this.#largeLane];
    return Promise.all(lanes.map(({ settled }) => settled)).then(() => undefined);
  }

  /** Resolves when every record has been begun or deferred, and there is room for another part, or the session has ended. */
  async deliver({ records, next, answered }: RequestChunk): Promise<void> {
    this.#deferred.saw(records);
    await this.#finish(this.#lane, () => records.slice(this.#firstDue(records)), {
      isCurrent: () => this.#lane.isCurrent,
      resolved: (offset) => this.#begins(offset + 1)(),
      answer: async (offset, work) => {
        const done = this.#begins(offset + 1);
        await this.#partLanes.begin(() => work().then(done));
      },
      deferrals: this.#deferred,
    });
    if (!this.#ended) this.#begins(next, answered)();
  }

  #finish(lane: RetryingLane, due: () => readonly RequestRecord[], control: BatchControl): Promise<void> {
    const { partition, handler } = this.#options;
    return lane.finish(
      () => due().length > 0,
      () => handler(partition, due(), control),
    );
  }

  /** Returns what to call when everything from the last such offset up to this one is answered. */
  #begins(until: number, then?: () => void): () => void {
    this.#begun = Math.max(until, this.#begun ?? until);
    return this.#answered.add(until, then);
  }

  /** Starts no further part. */
  pause(): void {
    for (const lane of [this.#lane, this.#partLanes, this.#largeLane]) lane.pause();
  }

  /** Resumes, and cuts short the pause after an error. */
  resume(): void {
    for (const lane of [this.#lane, this.#partLanes, this.#largeLane]) lane.resume();
  }

  end(): void {
    this.#ended = true;
    for (const lane of [this.#lane, this.#partLanes, this.#largeLane]) lane.end();
    this.#reading?.stop();
  }

  #firstDue(records: readonly RequestRecord[]): number {
    const begun = this.#begun;
    if (begun === undefined) return 0;
    const at = records.findIndex(({ offset }) => offset >= begun);
    return at === -1 ? records.length : at;
  }

  #passed(through: number): void {
    if (this.#ended || (this.#through !== undefined && through <= this.#through)) return;
    this.#through = through;
    this.#advance();
  }

  #largeAnswered(next: number): void {
    this.#deferred.answered(next);
    this.#advance();
  }

  /** Serves what is in memory, then reads the rest again; ends when nothing waits. */
  async #serveLarge(): Promise<void> {
    if (this.#isServingLarge) return;
    this.#isServingLarge = true;
    while (!this.#ended && this.#deferred.first !== undefined) {
      const { held, unread } = this.#deferred;
      if (held.length > 0) await this.#finish(this.#largeLane, () => [...held], this.#largeControl);
      else if (unread !== undefined) await this.#readAgain(unread.from);
    }
    this.#isServingLarge = false;
  }

  /** Resolves when the requests that are not in memory are answered, or the session has ended. */
  #readAgain(from: number): Promise<void> {
    return new Promise((resolve) => {
      const reading = this.#options.readAgain(from, async ({ records, next }) => {
        const due = () => records.filter(({ offset }) => isWithin(this.#deferred.unread, offset));
        const [first] = due();
        if (first !== undefined) this.#deferred.sawFirstUnread(first);
        // Others may be deferred while the last ones are served.
        while (!this.#ended && due().length > 0) await this.#finish(this.#largeLane, due, this.#largeControl);
        if (!this.#ended) this.#largeAnswered(next);
        if (!this.#ended && this.#deferred.unread !== undefined) return;
        reading.stop();
        resolve();
      });
      this.#reading = reading;
    });
  }

  #advance(): void {
    const small = this.#through;
    if (this.#ended || small === undefined) return;
    const next = Math.min(small, this.#deferred.first ?? small);
    const before = this.#position;
    if (before !== undefined && next <= before.next && small <= before.small) return;
    this.#position = { next, small };
    this.#options.onProgress(this.#position);
  }
}

function isWithin(range: OffsetRange | undefined, offset: number): boolean {
  return range !== undefined && offset >= range.from && offset < range.until;
}
