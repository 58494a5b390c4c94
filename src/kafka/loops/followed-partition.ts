import type { Timer } from '../../core/runtime.ts';
import { AT, LENGTH_END, readInt64 } from '../records/format.ts';
import type { FetchedPartition } from '../wire/port.ts';
import type { Followed, TailChunk, TailSink } from './tail-port.ts';

/** What was fetched of a partition; its records once they are decoded. */
export interface Fetched {
  readonly from: number;
  readonly next: number;
  readonly answer: FetchedPartition;
  chunk?: TailChunk;
}

export interface PartitionHooks {
  /** There may be room for a fetch now. */
  readonly onRoom: (place: FollowedPartition) => void;
  readonly decode: (fetched: Fetched) => Promise<TailChunk>;
  /** The chunk could not be handed on. Resolves when it is time to try again. */
  readonly onFailure: (place: FollowedPartition, error: unknown) => Promise<void>;
}

/**
 * A partition that a tail follows. It gets chunks and hands them on, each on its own.
 *
 * Getting; the tail changes the state:
 *
 *   finding  -> ready      the cluster has named the leader
 *   ready    -> fetching   part of a fetch: it is not paused, and `ahead` is free
 *   fetching -> ready      answered, with records or without
 *   fetching -> lost       its offset lies outside of the log
 *   lost     -> resting    the bounds were asked for, and the sink said where to go on
 *   any      -> resting    a fault of the call or of the partition
 *   resting  -> finding    after 50 ms, doubled up to 1 s
 *   any      -> stopped    it never goes on
 *
 * Handing on: `ahead` (as fetched) -> `current` (decoded, then delivered) -> gone. So two chunks are held at most, and the
 * next one is fetched while one is decoded and delivered. `seek` and `stop` drop both; `seek` also raises `epoch`, by
 * which an answer to an earlier fetch is known.
 */
export class FollowedPartition implements Followed {
  readonly topic: string;
  readonly partition: number;
  readonly key: string;
  readonly sink: TailSink;
  readonly #hooks: PartitionHooks;
  state: 'finding' | 'ready' | 'fetching' | 'lost' | 'resting' | 'stopped' = 'finding';
  /** The node ID of the leader, once it was found. */
  leader: number | undefined;
  /** Where the next fetch begins. */
  fetchFrom: number;
  epoch = 0;
  /** The epoch of the fetch under way. */
  askedIn = 0;
  /** Faults in a row. */
  faults = 0;
  restTimer: Timer | undefined;
  #ahead: Fetched | undefined;
  #current: Fetched | undefined;
  #isPaused = false;
  #isHandingOn = false;
  #handingOn: Promise<void> = Promise.resolve();

  constructor(
    at: { readonly topic: string; readonly partition: number; readonly offset: number },
    sink: TailSink,
    hooks: PartitionHooks,
  ) {
    this.topic = at.topic;
    this.partition = at.partition;
    this.key = keyOf(at);
    this.fetchFrom = at.offset;
    this.sink = sink;
    this.#hooks = hooks;
  }

  get position(): number {
    return this.#current?.from ?? this.#ahead?.from ?? this.fetchFrom;
  }

  /** Whether it may be part of a fetch. */
  get hasRoom(): boolean {
    return this.state === 'ready' && !this.#isPaused && this.#ahead === undefined;
  }

  /** Whether it may have room any moment, when its sink is done. */
  get isFull(): boolean {
    return this.state === 'ready' && !this.#isPaused && this.#ahead !== undefined;
  }

  /** Resolves when nothing of it is being handed on any more. */
  get handingOn(): Promise<void> {
    return this.#handingOn;
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.goOn();
  }

  seek(offset: number): void {
    this.#current = undefined;
    this.#fetchAnew(offset);
  }

  stop(): void {
    this.state = 'stopped';
    this.#ahead = undefined;
    this.#current = undefined;
    this.restTimer?.cancel();
  }

  /** Takes what was fetched from `fetchFrom`; false where there is not one whole batch. */
  keep(answer: FetchedPartition): boolean {
    const from = this.fetchFrom;
    const next = endOfBatches(answer.records, from);
    if (next === from) return false;
    this.#ahead = { from, next, answer };
    this.fetchFrom = next;
    this.goOn();
    return true;
  }

  /** Something has changed: it fetches and hands on, as far as it can. */
  goOn(): void {
    if (this.hasRoom) this.#hooks.onRoom(this);
    if (this.#canHandOn() && !this.#isHandingOn) this.#handingOn = this.#handOn();
  }

  #fetchAnew(offset: number): void {
    this.epoch += 1;
    this.fetchFrom = offset;
    this.#ahead = undefined;
    this.goOn();
  }

  #canHandOn(): boolean {
    return !this.#isPaused && (this.#current ?? this.#ahead) !== undefined;
  }

  async #handOn(): Promise<void> {
    this.#isHandingOn = true;
    while (this.#canHandOn()) {
      this.#current ??= this.#takeAhead();
      if (this.#current !== undefined) await this.#handOnOne(this.#current);
    }
    this.#isHandingOn = false; // in the turn in which there was nothing more
  }

  #takeAhead(): Fetched | undefined {
    const ahead = this.#ahead;
    this.#ahead = undefined;
    if (this.hasRoom) this.#hooks.onRoom(this);
    return ahead;
  }

  /** Decodes, or delivers what is decoded: it may be paused in between. */
  async #handOnOne(fetched: Fetched): Promise<void> {
    try {
      if (fetched.chunk === undefined) {
        fetched.chunk = await this.#hooks.decode(fetched);
        if (this.#current === fetched && fetched.chunk.next !== fetched.next) this.#fetchAnew(fetched.chunk.next);
        return;
      }
      await this.sink.deliver(fetched.chunk);
      this.#current = undefined;
    } catch (error) {
      await this.#hooks.onFailure(this, error);
    }
  }
}

export function keyOf({ topic, partition }: { readonly topic: string; readonly partition: number }): string {
  return `${topic}/${partition}`;
}

/**
 * Behind the last whole batch, where the next fetch begins while this one is still to be decoded. Decoding has the last
 * word on it.
 */
function endOfBatches(records: Buffer, from: number): number {
  let next = from;
  for (let at = 0; at + LENGTH_END <= records.length; ) {
    const end = at + LENGTH_END + records.readInt32BE(at + AT.length);
    if (end > records.length) break;
    if (end < at + AT.records) return next + 1; // damaged
    const after = readInt64(records, at + AT.baseOffset) + records.readInt32BE(at + AT.lastOffset) + 1;
    if (after > next) next = after;
    else if (Number.isNaN(after)) next += 1;
    at = end;
  }
  return next;
}
