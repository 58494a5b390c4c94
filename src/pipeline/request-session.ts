import type { RequestPosition } from '../codec/request-position.ts';
import type { BatchControl } from './batch.ts';
import { type Deferrals, type DeferredLaneName, DeferredQueue, type OffsetRange } from './deferred.ts';
import { InOrder, type LaneOptions, PartLanes, RetryingLane } from './lanes.ts';
import { PART_MAX_REQUESTS } from './parts.ts';
import type { RequestChunk, RequestRecord } from './ports.ts';

/** Processes records of one partition: resolves parts as they are answered, rejects on a retryable error. */
export type RequestHandler = (
  partition: number,
  records: readonly RequestRecord[],
  control: BatchControl,
) => Promise<void>;

export interface RequestSessionOptions extends LaneOptions {
  readonly partition: number;
  readonly handler: RequestHandler;
  readonly onProgress: (position: RequestPosition) => void;
  /** Reads the partition again from an offset, for the requests of a lane, until it is stopped. */
  readonly readAgain: DeferredLaneOptions['readAgain'];
  /** Where reading begins: what is answered already. Undefined if nothing was ever committed. */
  readonly position?: RequestPosition | undefined;
}

/** How many requests wait, and the append time of the oldest (wall ms). */
export interface Waiting {
  readonly waiting: number;
  readonly sinceMs: number;
}

/**
 * One request partition for as long as this worker owns it, across rebalances that leave it here.
 *
 *   idle ──deliver──▶ working ──all begun──▶ idle
 *                     working ──error──▶ resting ──time is up, or the gate opens──▶ working
 *                     working ──gate closed──▶ waiting ──gate opens──▶ working
 *   any  ──end──▶ ended (final)
 *
 * One chunk is read at a time, and cut into parts in order. A few parts are answered side by side, so that one does not
 * wait for the replies of another; the next chunk is read as soon as its first part would have room. A part in progress
 * when the gate closes or the session ends is completed, since it may be decided already; no further part starts.
 * Unanswered requests are retried from memory, so an error never moves the read position, which passes a part when all
 * before it are answered, too.
 *
 * Large requests, those of accounts in debt, and those for numbers are deferred to lanes that run in parallel, so they
 * do not hold up the requests after them, in later chunks as well: the former take their time, and the last wait for
 * etcd. That is safe, because the order of the ledger decides, not that of the requests. Each lane is a cursor over the
 * partition. The position has the lowest of those of the deferred ones: whoever continues from it answers some of their
 * requests again, with the same replies.
 */
export class RequestSession {
  readonly #options: RequestSessionOptions;
  readonly #lane: RetryingLane;
  readonly #partLanes: PartLanes;
  readonly #large: DeferredLane;
  readonly #debts: DeferredLane;
  readonly #numbers: DeferredLane;
  readonly #deferrals: Deferrals;
  #ended = false;
  /** Everything below has been begun or deferred. */
  #begun: number | undefined;
  readonly #answered = new InOrder((through) => this.#passed(through));
  /** Everything below has been answered or deferred. */
  #through: number | undefined;
  #position: RequestPosition | undefined;

  constructor(options: RequestSessionOptions) {
    const { position } = options;
    this.#options = options;
    this.#lane = new RetryingLane(options);
    this.#partLanes = new PartLanes(options);
    this.#begun = position?.small;
    this.#through = position?.small;
    this.#position = position;
    const unread =
      position && position.next < position.small ? { from: position.next, until: position.small } : undefined;
    this.#large = this.#deferredLane('large', Number.POSITIVE_INFINITY, unread);
    this.#debts = this.#deferredLane('debts', Number.POSITIVE_INFINITY, unread);
    this.#numbers = this.#deferredLane('numbers', PART_MAX_REQUESTS, unread);
    this.#deferrals = { large: this.#large.queue, debts: this.#debts.queue, numbers: this.#numbers.queue };
    for (const lane of this.#deferred) void lane.serve();
  }

  #deferredLane(name: DeferredLaneName, maxRecords: number, unread: OffsetRange | undefined): DeferredLane {
    const { handler, partition, position } = this.#options;
    return new DeferredLane({
      ...this.#options,
      ...{ name, maxRecords, unread, debtors: name === 'debts' ? position?.debtors : undefined },
      isDebtor: (replyTopic, offset) => this.#debts.queue.isDebtor(replyTopic, offset),
      serve: (records, control) => handler(partition, records, control),
      onAnswered: () => this.#advance(),
    });
  }

  get #deferred(): readonly DeferredLane[] {
    return [this.#large, this.#debts, this.#numbers];
  }

  get partition(): number {
    return this.#options.partition;
  }

  /** What to commit; undefined until something is known to be answered. */
  get position(): RequestPosition | undefined {
    return this.#position;
  }

  /** The unanswered requests that let others go first; undefined for none. */
  oldestLarge(): Waiting | undefined {
    const all = [this.#large, this.#debts].flatMap(({ queue }) => queue.oldest ?? []);
    if (all.length === 0) return undefined;
    const waiting = all.reduce((sum, one) => sum + one.waiting, 0);
    return { waiting, sinceMs: Math.min(...all.map(({ sinceMs }) => sinceMs)) };
  }

  /** The unanswered requests for numbers, which may wait for etcd; undefined for none. */
  oldestNumbers(): Waiting | undefined {
    return this.#numbers.queue.oldest;
  }

  /** Resolves when the parts in progress have ended. */
  get settled(): Promise<void> {
    return Promise.all(this.#lanes.map(({ settled }) => settled)).then(() => undefined);
  }

  /**
   * Resolves when every record has been begun or deferred, and there is room for another part, or the session has
   * ended.
   */
  async deliver({ records, next, answered }: RequestChunk): Promise<void> {
    const due = () => records.slice(this.#firstDue(records));
    const control: BatchControl = {
      isCurrent: () => this.#lane.isCurrent,
      resolved: (offset) => this.#begins(offset + 1)(),
      answer: async (offset, work) => {
        const done = this.#begins(offset + 1);
        await this.#partLanes.begin(() => work().then(done));
      },
      deferrals: this.#deferrals,
    };
    const { partition, handler } = this.#options;
    await this.#lane.finish(
      () => due().length > 0,
      () => handler(partition, due(), control),
    );
    if (!this.#ended) this.#begins(next, answered)();
  }

  get #lanes() {
    return [this.#lane, this.#partLanes, ...this.#deferred];
  }

  /** Returns what to call when everything from the last such offset up to this one is answered. */
  #begins(until: number, then?: () => void): () => void {
    this.#begun = Math.max(until, this.#begun ?? until);
    return this.#answered.add(until, then);
  }

  /** Starts no further part. */
  pause(): void {
    for (const lane of this.#lanes) lane.pause();
  }

  /** Resumes, and cuts short the pause after an error. */
  resume(): void {
    for (const lane of this.#lanes) lane.resume();
  }

  end(): void {
    this.#ended = true;
    for (const lane of this.#lanes) lane.end();
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

  #advance(): void {
    const small = this.#through;
    if (this.#ended || small === undefined) return;
    const next = Math.min(small, ...this.#deferred.map(({ queue }) => queue.first ?? small));
    const before = this.#position;
    if (before !== undefined && next <= before.next && small <= before.small) return;
    const debtors = this.#debts.queue.debtorsFrom(next);
    this.#position = { next, small, ...(debtors.length > 0 && { debtors }) };
    this.#options.onProgress(this.#position);
  }
}

/** A partition that is being read. */
interface LaneReading {
  /** Delivers nothing more. */
  stop(): void;
}

interface DeferredLaneOptions extends LaneOptions {
  readonly name: DeferredLaneName;
  /** Where the requests are that an earlier session took over and did not answer. */
  readonly unread: OffsetRange | undefined;
  /** Which of them wait in this lane for a debt. */
  readonly debtors: RequestPosition['debtors'];
  /** Which requests wait in the lane `debts` for one. */
  readonly isDebtor: (replyTopic: string | undefined, offset: number) => boolean;
  /**
   * The most records from memory that are served at a time; those that arrive meanwhile are served with the next ones.
   */
  readonly maxRecords: number;
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
class DeferredLane {
  readonly queue: DeferredQueue;
  readonly #options: DeferredLaneOptions;
  readonly #lane: RetryingLane;
  readonly #control: BatchControl;
  #ended = false;
  #isServing = false;
  #reading: LaneReading | undefined;

  constructor(options: DeferredLaneOptions) {
    const { name, unread, debtors, isDebtor } = options;
    this.#options = options;
    this.#lane = new RetryingLane(options);
    this.queue = new DeferredQueue(() => void this.serve(), unread, debtors);
    this.#control = {
      lane: name,
      isCurrent: () => this.#lane.isCurrent,
      resolved: (offset) => this.#answered(offset + 1),
      isDebtor,
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
