import type { BatchControl } from './batch.ts';
import { DeferredQueue } from './deferred.ts';
import { Lane, type LaneOptions } from './lane.ts';
import type { RequestRecord } from './ports.ts';

/** Records of one partition, in offset order. */
export interface RequestChunk {
  readonly records: readonly RequestRecord[];
  /** The next offset to read: after the last record, and after any transaction markers that follow it. */
  readonly next: number;
}

export interface RequestSessionOptions extends LaneOptions {
  /** Where reading begins: everything below has been answered. Undefined if nothing was ever committed. */
  readonly from?: number | undefined;
  /** Everything below this offset has been answered. */
  readonly onProgress: (next: number) => void;
}

/** How far replies may run ahead of the first deferred request: after a crash they are sent again. */
const MAX_AHEAD = 10_000;

/**
 * One request partition for as long as this worker owns it, across rebalances that leave it here.
 *
 *   idle ──deliver──▶ working ──all answered──▶ idle
 *                     working ──error──▶ resting ──time is up, or the gate opens──▶ working
 *                     working ──gate closed──▶ waiting ──gate opens──▶ working
 *   any  ──end──▶ ended (final)
 *
 * One chunk is processed at a time, and its delivery waits for that. A part in progress when the gate closes or the session
 * ends is completed, since it may be decided already; no further part starts. Unanswered requests are retried from
 * memory, so an error never moves the read position.
 *
 * Large requests are deferred to a second lane that runs in parallel, so they do not hold up the requests after them, in
 * later chunks as well. That is safe, because the order of the ledger decides, not that of the requests; but the offset
 * to commit stays at the first unanswered request.
 */
export class RequestSession {
  readonly #options: RequestSessionOptions;
  readonly #lane: Lane;
  readonly #largeLane: Lane;
  readonly #deferred = new DeferredQueue();
  #ended = false;
  /** Everything below has been answered or deferred. */
  #through: number | undefined;
  #next: number | undefined;
  #largeWork: Promise<void> | undefined;
  /** Wakes a delivery that waits for large requests to be answered. */
  #onLarge: (() => void) | undefined;

  constructor(options: RequestSessionOptions) {
    this.#options = options;
    this.#next = options.from;
    this.#lane = new Lane(options);
    this.#largeLane = new Lane(options);
  }

  get partition(): number {
    return this.#options.partition;
  }

  /** The offset to commit: everything below it has been answered. Undefined until something is known to be. */
  get next(): number | undefined {
    return this.#next;
  }

  /** Resolves when the parts in progress have ended. */
  get settled(): Promise<void> {
    return Promise.all([this.#lane.settled, this.#largeLane.settled]).then(() => undefined);
  }

  /** Resolves when every record has been answered or deferred, or the session has ended. */
  async deliver({ records, next }: RequestChunk): Promise<void> {
    while (this.#isTooFar(next)) await this.#largeAnswered();
    await this.#lane.finish(() => records.slice(this.#firstDue(records)), {
      isCurrent: () => this.#lane.isCurrent,
      resolved: (offset) => this.#passed(offset + 1),
      deferrals: this.#deferred,
    });
    this.#passed(next);
  }

  /** Starts no further part. */
  pause(): void {
    this.#lane.pause();
    this.#largeLane.pause();
  }

  /** Resumes, and cuts short the pause after an error. */
  resume(): void {
    this.#lane.resume();
    this.#largeLane.resume();
  }

  end(): void {
    this.#ended = true;
    this.#lane.end();
    this.#largeLane.end();
    this.#onLarge?.();
  }

  #isTooFar(next: number): boolean {
    return !this.#ended && next - (this.#deferred.first ?? next) > MAX_AHEAD;
  }

  /** Resolves also when the session ends. */
  #largeAnswered(): Promise<void> {
    return new Promise((resolve) => {
      this.#onLarge = resolve;
    });
  }

  #firstDue(records: readonly RequestRecord[]): number {
    const through = this.#through;
    if (through === undefined) return 0;
    const at = records.findIndex(({ offset }) => offset >= through);
    return at === -1 ? records.length : at;
  }

  #passed(through: number): void {
    if (this.#ended || (this.#through !== undefined && through <= this.#through)) return;
    this.#through = through;
    this.#deferred.passed(through);
    this.#advance();
    this.#largeWork ??= this.#serveLarge();
  }

  async #serveLarge(): Promise<void> {
    const control: BatchControl = {
      isCurrent: () => this.#largeLane.isCurrent,
      resolved: (offset) => {
        this.#deferred.answered(offset);
        this.#advance();
        this.#onLarge?.();
      },
    };
    await this.#largeLane.finish(() => this.#deferred.part(), control);
    this.#largeWork = undefined;
  }

  #advance(): void {
    const through = this.#through;
    if (this.#ended || through === undefined) return;
    const next = Math.min(through, this.#deferred.first ?? through);
    if (this.#next !== undefined && next <= this.#next) return;
    this.#next = next;
    this.#options.onProgress(next);
  }
}
