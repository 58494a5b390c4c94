import type { BatchControl } from './batch.ts';
import { DeferredQueue } from './deferred.ts';
import { Lane, type LaneOptions } from './lane.ts';
import type { RequestRecord } from './ports.ts';

/** Records of one partition in the order of their offsets, as they were read. */
export interface RequestChunk {
  readonly records: readonly RequestRecord[];
  /** Where reading goes on: behind the last record, and behind markers of transactions that follow it. */
  readonly next: number;
}

export interface RequestSessionOptions extends LaneOptions {
  /** Everything below this offset has been answered. */
  readonly onProgress: (next: number) => void;
}

/** What is answered so far beyond the first one that was put off is answered once more after a crash. */
const MAX_AHEAD = 10_000;

/**
 * One request partition for as long as this worker has it, rebalances that leave it here included.
 *
 *   idle ──deliver──▶ working ──all answered──▶ idle
 *                     working ──fault──▶ resting ──time is up, or the gate opens──▶ working
 *                     working ──gate closed──▶ waiting ──gate opens──▶ working
 *   any  ──end──▶ ended, for good
 *
 * One chunk is in hand at a time, and whoever delivers waits for it. A part that is under way when the gate closes or the
 * session ends comes to its end, since it may be decided already; no further part begins. What was not answered is tried
 * again from memory, so a fault never moves the place of reading.
 *
 * Large requests are put off into a lane of their own, which works beside the other one: those behind them, of later chunks
 * as well, are not held up. The ledger's order decides, not the requests', so that is safe; but the offset to commit
 * stays at the first request that is not answered.
 */
export class RequestSession {
  readonly #options: RequestSessionOptions;
  readonly #lane: Lane;
  readonly #largeLane: Lane;
  readonly #deferred = new DeferredQueue();
  #ended = false;
  /** Everything below has been answered or put off. */
  #through: number | undefined;
  #next: number | undefined;
  #largeWork: Promise<void> | undefined;
  /** Wakes whoever waits for large requests to be answered. */
  #onLarge: (() => void) | undefined;

  constructor(options: RequestSessionOptions) {
    this.#options = options;
    this.#lane = new Lane(options);
    this.#largeLane = new Lane(options);
  }

  get partition(): number {
    return this.#options.partition;
  }

  /** The offset to commit: everything below it has been answered. Undefined while nothing was. */
  get next(): number | undefined {
    return this.#next;
  }

  /** Resolves when the parts under way have ended. */
  get settled(): Promise<void> {
    return Promise.all([this.#lane.settled, this.#largeLane.settled]).then(() => undefined);
  }

  /** Resolves when every record has been answered or put off, or the session has ended. */
  async deliver({ records, next }: RequestChunk): Promise<void> {
    while (this.#isTooFar(next)) await this.#largeAnswered();
    await this.#lane.finish(() => records.slice(this.#firstDue(records)), {
      isCurrent: () => this.#lane.isCurrent,
      resolved: (offset) => this.#passed(offset + 1),
      deferrals: this.#deferred,
    });
    this.#passed(next);
  }

  /** Begins no further part. */
  pause(): void {
    this.#lane.pause();
    this.#largeLane.pause();
  }

  /** Goes on; what rests after a fault, as after a refusal by the gate, rests no longer. */
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
