import type { Runtime } from '../../async/runtime.ts';
import { type FetchQuery, fetchAt, type LeaderCluster, partitionError } from './leader-calls.ts';

/**
 * Which replica to read.
 *
 * In a cloud, a byte that crosses zones costs money, and each standby copy reads the whole ledger. A leader that is
 * asked with the reader's rack names a replica of that rack (KIP-392), and any replica can serve a fetch. But a replica
 * knows less than its leader: it is behind, it may be cut off and not know it, and what it holds may be of a life of
 * the log that has ended. So nothing may be decided by it. Only a reader that may lag is sent there, it compares the
 * log each time it moves, and every trouble with a replica ends at the leader:
 *
 * - An error, silence, or an offset that the replica does not have says nothing about the log. The leader is read for a
 *   while, and what it says counts.
 * - A replica that is cut off returns no error and no records. So the leader is asked again each minute, and its end of
 *   the log of a minute ago must have arrived at the replica by then.
 */

/** How long a choice holds. */
const CHOSEN_MS = 60_000;
/** How long the leader is read after a replica has failed: a broker that restarts needs that long to be in sync. */
const AVOIDED_MS = 300_000;

export interface NearestReplica {
  /** The node ID of the replica; undefined if the leader is the one to read. */
  readonly node: number | undefined;
  /** The end of the log for the leader. */
  readonly end: number;
}

/** `offset`: from where the replica is to be read. */
export type NearestQuery = Omit<FetchQuery, 'purpose' | 'maxBytes'> & { readonly rack: string };

/** Asks the leader of a partition which replica is near. Sent once; rejects with a KafkaError. */
export async function nearestReplica(
  cluster: LeaderCluster,
  runtime: Runtime,
  query: NearestQuery,
): Promise<NearestReplica> {
  const { fetched, node } = await fetchAt(cluster, runtime, { ...query, purpose: 'control', maxBytes: 1 });
  const { errorCode, nearer, highWatermark } = fetched;
  if (errorCode !== undefined) throw partitionError(cluster, { ...query, node }, errorCode);
  return { node: nearer === node ? undefined : nearer, end: highWatermark };
}

/** The replica from which one partition is read. */
export class ReplicaChoice {
  #mayLag = false;
  #near: { readonly node: number; readonly leaderEnd: number } | undefined;
  #isAsking = false;
  /** The end of the log for the replica; undefined while it has not answered since it was chosen. */
  #end: number | undefined;
  #nextMs = Number.NEGATIVE_INFINITY;

  /** Whether a replica is read, and not the leader. */
  get isNear(): boolean {
    return this.#near !== undefined;
  }

  allow(mayLag: boolean): void {
    this.#mayLag = mayLag;
  }

  /** Whether the choice has to be made again. */
  isDue(nowMs: number): boolean {
    return this.#mayLag ? nowMs >= this.#nextMs : this.isNear;
  }

  /** Whether the leader is to be asked for a replica now. If not, the leader is the one to read. */
  ask(nowMs: number): boolean {
    if (this.#near !== undefined && this.#end !== undefined && this.#end < this.#near.leaderEnd) this.failed(nowMs);
    this.#isAsking = this.#mayLag && nowMs >= this.#nextMs;
    if (!this.#isAsking) this.#near = undefined;
    return this.#isAsking;
  }

  /** What the leader has answered. */
  chosen({ node, end }: NearestReplica, nowMs: number): void {
    this.#isAsking = false;
    this.#near = node === undefined ? undefined : { node, leaderEnd: end };
    this.#end = undefined;
    this.#nextMs = nowMs + CHOSEN_MS;
  }

  /** A fetch was answered, and the log ends here for whoever did. */
  answered(end: number): void {
    this.#end = end;
  }

  /** Reading has failed. If the leader is read anyway, that is no news. */
  failed(nowMs: number): void {
    if (!this.isNear && !this.#isAsking) return;
    this.#near = undefined;
    this.#isAsking = false;
    this.#nextMs = nowMs + AVOIDED_MS;
  }
}
