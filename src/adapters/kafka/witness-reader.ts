import { WitnessTable, type WitnessView } from '../../codec/witness.ts';
import type { Tail } from '../../kafka/loops/tail.ts';
import type { Followed, TailSink } from '../../kafka/loops/tail-port.ts';
import { UNREADABLE } from '../../kafka/records/decode.ts';
import type { FetchedRecord } from '../../kafka/records/record.ts';

/** The content of the witness topic, as far as it has been read. */
export class WitnessFollower {
  readonly #table: WitnessTable;
  readonly #waiting = new Set<{ readonly offset: number; readonly arrived: () => void }>();
  /** The offset to continue from; everything below was read. */
  position = 0;
  /** Why a record could not be decoded; its worker ID and ceiling are unknown. */
  unreadable: string | undefined;

  constructor(datacenterId: number) {
    this.#table = new WitnessTable(datacenterId);
  }

  /**
   * Takes records in log order; the log continues at `next`. Offsets may be missing, since the topic is compacted.
   * Records that were delivered before are skipped.
   */
  deliver(records: readonly Pick<FetchedRecord, 'offset' | 'key' | 'value' | 'headers'>[], next: number): void {
    for (const { offset, key, value, headers } of records) {
      if (offset < this.position) continue;
      const why = headers[UNREADABLE];
      if (why === undefined) this.#table.apply(key, value, headers);
      else this.unreadable ??= String(why);
    }
    this.position = Math.max(this.position, next);
    for (const waiter of this.#waiting) {
      if (waiter.offset >= this.position) continue;
      this.#waiting.delete(waiter);
      waiter.arrived();
    }
  }

  /** Resolves once the record at `offset` was read; a caller that no longer waits aborts the signal. */
  reached(offset: number, signal: AbortSignal): Promise<void> {
    if (offset < this.position) return Promise.resolve();
    return new Promise((resolve) => {
      const waiter = { offset, arrived: resolve };
      this.#waiting.add(waiter);
      signal.addEventListener('abort', () => this.#waiting.delete(waiter), { once: true });
    });
  }

  /** Goes back to the start of the log. Witnesses that were read before still count. */
  rewind(): void {
    this.position = 0;
    this.unreadable = undefined;
  }

  view(): WitnessView {
    return this.#table.view();
  }
}

/** Reads the only partition of the witness topic into a follower, continuously. */
export class WitnessReader {
  readonly #tail: Pick<Tail, 'follow'>;
  readonly #topic: string;
  readonly #follower: WitnessFollower;
  #followed: Followed | undefined;

  /** The tail reads uncommitted; its creator closes it. */
  constructor(tail: Pick<Tail, 'follow'>, topic: string, follower: WitnessFollower) {
    this.#tail = tail;
    this.#topic = topic;
    this.#follower = follower;
  }

  start(): void {
    const follower = this.#follower;
    const sink: TailSink = {
      deliver: ({ records, next }) => follower.deliver(records, next),
      outOfRange: ({ logStart, end }, position) => {
        if (position > end) follower.rewind(); // the log was replaced, or has lost its end
        return logStart;
      },
    };
    this.#followed = this.#tail.follow({ topic: this.#topic, partition: 0, offset: follower.position }, sink);
  }

  stop(): void {
    this.#followed?.stop();
  }

  /** Continues from the follower's position. */
  restart(): void {
    this.#followed?.seek(this.#follower.position);
  }
}
