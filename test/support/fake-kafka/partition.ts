import type { KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { Clockwork } from './clockwork.ts';
import { PartitionLog } from './partition-log.ts';

/** The leader and the in-sync replicas of a partition; a new object after each change. */
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
  /** How old a record may be; not with `stampsTime`. */
  readonly oldestMs: number;
  readonly isCompacted: boolean;
  readonly maxBatchBytes: number;
  /** How long followers take to catch up with the leader. */
  readonly replicationMs: () => number;
}

/** Observes a partition. */
export interface PartitionObserver {
  /** Batches that all in-sync replicas now have, and that readers may see: [from, below). */
  durable(partition: Partition, from: number, below: number): void;
  /** A batch was stored at the leader, in the same buffer that was sent. */
  stored(partition: Partition, baseOffset: number, sent: Buffer): void;
}

/** The outcome of an append at the broker. */
export type Outcome = (errorCode: KafkaErrorCode | undefined) => void;

/**
 * One partition and its replicas. There is one log: a replica is always a prefix of the leader's log, so its end
 * describes it. A newly elected leader truncates the log at its own end; that is how an append without a follower is
 * lost.
 */
export class Partition {
  readonly topic: string;
  readonly number: number;
  readonly settings: PartitionSettings;
  readonly log = new PartitionLog();
  readonly #clock: Clockwork;
  readonly #ends = new Map<number, number>();
  /** The high watermark when a broker stopped leading. */
  readonly #lastKnown = new Map<number, number>();
  /** Replicas on brokers that run and reach each other. */
  readonly #live: (node: number) => boolean;
  readonly #watchers = new Set<() => void>();
  observer: PartitionObserver | undefined;
  leadership: Leadership;
  #highWatermark = 0;
  /** Replicas do not follow while this is set. */
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

  /** The offset below which all in-sync replicas have everything. */
  get highWatermark(): number {
    return this.#highWatermark;
  }

  /** The high watermark as a broker knows it: a deposed leader that was not informed has an old one. */
  highWatermarkOf(node: number): number {
    if (node === this.leadership.leader) return this.#highWatermark;
    return Math.min(this.#highWatermark, this.#lastKnown.get(node) ?? 0);
  }

  /** The high watermark for a replica that follows: it has no more than it has fetched. */
  followedTo(node: number): number {
    return Math.min(this.#highWatermark, this.#ends.get(node) ?? 0);
  }

  /** Stores a batch at the leader; `durable` is called once, when all in-sync replicas have it, or can't get it. */
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
      // A change of the in-sync replicas keeps the leader; any other change is a new epoch, whose leader may lack it.
      if (lost) durable('NOT_LEADER_FOR_PARTITION');
      else durable(this.leadership.inSync.length < minInSync ? 'NOT_ENOUGH_REPLICAS_AFTER_APPEND' : undefined);
    };
    this.#watchers.add(look);
    this.observer?.stored(this, baseOffset, batch);
    this.#advance();
    this.replicate();
    return { baseOffset, appendedAtMs: stampsTime ? nowMs : -1 };
  }

  /** Calls back at each change that may let a reader continue, until the returned function is called. */
  watch(look: () => void): () => void {
    this.#watchers.add(look);
    return () => this.#watchers.delete(look);
  }

  /** Lets replicas that can follow catch up with the leader, after a delay. */
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

  /** The controller fences a broker: others become leaders of its partitions. */
  fence(node: number): void {
    const { leader, inSync, epoch } = this.leadership;
    if (leader !== node && !inSync.includes(node)) return;
    const left = inSync.filter((one) => one !== node);
    const kept = left.length > 0 ? left : inSync;
    if (leader !== node) this.#set({ leader, inSync: kept, epoch });
    else this.#elect(left.find(this.#live) ?? -1, kept);
  }

  /** A broker is back: it leads partitions without a leader, and follows the rest. */
  unfence(node: number): void {
    const { leader, inSync } = this.leadership;
    if (!this.settings.replicas.includes(node)) return;
    if (leader === -1 && inSync.includes(node)) this.#elect(node, [node]);
    else if (leader !== -1 && leader !== node) this.#catchUp(node);
  }

  /** Moves the leadership to an in-sync replica, as a reassignment does; false if there is none. */
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

  /** All replicas have what another log has: the same records at the same offsets. Observers have seen them already. */
  copy(from: PartitionLog): void {
    this.log.copy(from);
    for (const node of this.#ends.keys()) this.#ends.set(node, this.log.end);
    this.#highWatermark = this.log.end;
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
