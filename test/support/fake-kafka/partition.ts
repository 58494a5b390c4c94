import type { FaultName } from '../../../src/kafka/wire/fault.ts';
import type { Clockwork } from './clockwork.ts';
import { PartitionLog } from './partition-log.ts';

/** Who leads a partition, and who has all that is acknowledged; another object after each change. */
export interface Leadership {
  /** -1 for none. */
  readonly leader: number;
  readonly inSync: readonly number[];
  readonly epoch: number;
}

export interface PartitionSettings {
  readonly replicas: readonly number[];
  readonly minInSync: number;
  readonly stampsTime: boolean;
  readonly isCompacted: boolean;
  readonly maxBatchBytes: number;
  /** How long followers take to have what the leader has. */
  readonly replicationMs: () => number;
}

/** Sees what becomes of a partition. */
export interface PartitionObserver {
  /** Batches that all copies in sync have now, and that readers may see: [from, below). */
  durable(partition: Partition, from: number, below: number): void;
  /** A batch was stored at the leader, in the very buffer that was sent. */
  stored(partition: Partition, baseOffset: number, sent: Buffer): void;
}

/** How an append ended at the broker. */
export type Outcome = (fault: FaultName | undefined) => void;

/**
 * One partition and its copies. There is one log: copies are always a beginning of the leader's, so each is told by its
 * end. Whoever is elected cuts the log off at its own end; that is how an append is lost which no follower had.
 */
export class Partition {
  readonly topic: string;
  readonly number: number;
  readonly settings: PartitionSettings;
  readonly log = new PartitionLog();
  readonly #clock: Clockwork;
  readonly #ends = new Map<number, number>();
  /** The high watermark when a broker ceased to lead. */
  readonly #lastKnown = new Map<number, number>();
  /** Copies on brokers that run and reach each other. */
  readonly #live: (node: number) => boolean;
  readonly #watchers = new Set<() => void>();
  observer: PartitionObserver | undefined;
  leadership: Leadership;
  #highWatermark = 0;
  /** Copies do not follow while this is set. */
  lagging = false;

  constructor(
    place: { readonly topic: string; readonly number: number },
    settings: PartitionSettings,
    clock: Clockwork,
    live: (node: number) => boolean,
  ) {
    this.topic = place.topic;
    this.number = place.number;
    this.settings = settings;
    this.#clock = clock;
    this.#live = live;
    const inSync = settings.replicas.filter(live);
    this.leadership = { leader: inSync[0] ?? -1, inSync: inSync.length > 0 ? inSync : settings.replicas, epoch: 0 };
    for (const node of settings.replicas) this.#ends.set(node, 0);
  }

  /** All copies in sync have what lies below. */
  get highWatermark(): number {
    return this.#highWatermark;
  }

  /** What a broker believes the high watermark to be: one that led before, and was not told, knows that of its time. */
  highWatermarkOf(node: number): number {
    if (node === this.leadership.leader) return this.#highWatermark;
    return Math.min(this.#highWatermark, this.#lastKnown.get(node) ?? 0);
  }

  /** Stores a batch at the leader; `durable` is called once, when all copies in sync have it, or can't get it. */
  append(
    batch: Buffer,
    nowMs: number,
    durable: Outcome,
  ): { readonly baseOffset: number; readonly appendedAtMs: number } {
    const { stampsTime, minInSync } = this.settings;
    const { leader, epoch } = this.leadership;
    const baseOffset = this.log.append(batch, epoch, stampsTime ? nowMs : undefined);
    const end = this.log.end;
    this.#ends.set(leader, end);
    const look = (): void => {
      const lost = this.leadership.epoch !== epoch;
      if (!lost && this.#highWatermark < end) return;
      this.#watchers.delete(look);
      // A change of copies keeps the leader; anything else is another term, whose leader need not have it.
      if (lost) durable('NOT_LEADER_FOR_PARTITION');
      else durable(this.leadership.inSync.length < minInSync ? 'NOT_ENOUGH_REPLICAS_AFTER_APPEND' : undefined);
    };
    this.#watchers.add(look);
    this.observer?.stored(this, baseOffset, batch);
    this.#advance();
    this.replicate();
    return { baseOffset, appendedAtMs: stampsTime ? nowMs : -1 };
  }

  /** Calls back at each change that may let a reader go on, until the answer is called. */
  watch(look: () => void): () => void {
    this.#watchers.add(look);
    return () => this.#watchers.delete(look);
  }

  /** Lets copies that can follow come up to the leader, a moment later. */
  replicate(): void {
    const { epoch } = this.leadership;
    const behind = this.settings.replicas.some((node) => (this.#ends.get(node) ?? 0) < this.log.end);
    if (!behind) return;
    this.#clock.schedule(this.settings.replicationMs(), () => {
      const { leader } = this.leadership;
      if (epoch !== this.leadership.epoch || this.lagging || leader < 0 || !this.#live(leader)) return;
      for (const node of this.settings.replicas) if (this.#live(node)) this.#ends.set(node, this.log.end);
      this.#advance();
    });
  }

  /** A broker is gone, as the controller sees it: others lead what it led. */
  fence(node: number): void {
    const { leader, inSync, epoch } = this.leadership;
    if (leader !== node && !inSync.includes(node)) return;
    const left = inSync.filter((one) => one !== node);
    const kept = left.length > 0 ? left : inSync;
    if (leader !== node) this.#set({ leader, inSync: kept, epoch });
    else this.#elect(left.find(this.#live) ?? -1, kept);
  }

  /** A broker is back: it leads what nobody leads, and follows the rest. */
  unfence(node: number): void {
    const { leader, inSync } = this.leadership;
    if (!this.settings.replicas.includes(node)) return;
    if (leader === -1 && inSync.includes(node)) this.#elect(node, [node]);
    else if (leader !== -1 && leader !== node) this.#catchUp(node);
  }

  /** Moves the leadership to a copy in sync, as a reassignment does; false when there is no such copy. */
  move(to: number): boolean {
    const { leader, inSync } = this.leadership;
    if (to === leader || !inSync.includes(to) || !this.#live(to)) return false;
    this.#elect(to, inSync);
    return true;
  }

  /** Drops the head, as retention does. */
  trim(start: number): void {
    this.log.trim(start);
    this.#wake();
  }

  /** Loses the tail, acknowledged or not, as an unclean election does. */
  truncate(from: number): void {
    this.log.truncate(from);
    for (const [node, end] of this.#ends) this.#ends.set(node, Math.min(end, this.log.end));
    this.#highWatermark = Math.min(this.#highWatermark, this.log.end);
    const { leader, inSync, epoch } = this.leadership;
    this.#set({ leader, inSync, epoch: epoch + 1 });
  }

  #elect(leader: number, inSync: readonly number[]): void {
    const { leader: before, epoch } = this.leadership;
    if (before !== -1) this.#lastKnown.set(before, this.#highWatermark);
    if (leader !== -1) {
      const end = this.#ends.get(leader) ?? 0;
      this.log.truncate(end);
      for (const [node, has] of this.#ends) this.#ends.set(node, Math.min(has, this.log.end));
    }
    this.#set({ leader, inSync, epoch: epoch + 1 });
  }

  #catchUp(node: number): void {
    this.#clock.schedule(this.settings.replicationMs(), () => {
      const { leader, inSync, epoch } = this.leadership;
      if (leader === -1 || !this.#live(node) || !this.#live(leader) || inSync.includes(node)) return;
      this.#ends.set(node, this.log.end);
      this.#set({ leader, inSync: [...inSync, node], epoch });
    });
  }

  #set(leadership: Leadership): void {
    this.leadership = leadership;
    this.#advance();
    this.#wake();
    this.replicate();
  }

  #advance(): void {
    const { leader, inSync } = this.leadership;
    if (leader === -1) return;
    const reached = Math.min(...inSync.map((node) => this.#ends.get(node) ?? 0));
    if (reached <= this.#highWatermark) return;
    const from = this.#highWatermark;
    this.#highWatermark = reached;
    this.observer?.durable(this, from, reached);
    this.#wake();
  }

  #wake(): void {
    for (const look of [...this.#watchers]) look();
  }
}
