import type { Brokers } from '../adapters/kafka/brokers.ts';
import { committedOffsets } from '../adapters/kafka/consumer-group.ts';
import type { Runtime } from '../async/runtime.ts';
import { describeError } from '../errors.ts';
import { END, fetchAt, offsetAt, partitionError, START } from '../kafka/loops/leader-calls.ts';
import { decodeBatches } from '../kafka/records/decode.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import type { Log } from '../log.ts';
import type { Vitals } from '../metrics/vitals.ts';

export interface UnreadOptions {
  readonly cluster: Brokers['cluster'] & Cluster;
  readonly runtime: Runtime;
  readonly log: Log;
  readonly groupId: string;
  readonly topic: string;
  /** How many partitions the request topic has. */
  readonly partitions: () => number;
}

/** Scrapes within this time show the same look. */
const LOOK_MS = 10_000;
/** What was seen is no news after this time. */
const NEWS_MS = 60_000;
const TIMEOUT_MS = 5_000;
/** Markers of transactions hold no request: of many in a row so many reads skip some thousand, then none is shown. */
const MOST_READS = 32;
const READ_BYTES = 8_192;

interface Look {
  readonly atMs: number;
  readonly ends: ReadonlyMap<number, number>;
  readonly oldest: Vitals['groupUnread'];
}

const NOTHING: Look = { atMs: Number.NEGATIVE_INFINITY, ends: new Map(), oldest: [] };

/**
 * How long requests wait that nobody answers, whoever should.
 *
 * An owner knows its own partitions, and nothing of them from before it owned them. Of a partition without an owner,
 * and of one whose owner is frozen, nobody would report anything, though nothing is worse for its requesters. So every
 * worker looks at all partitions, also while it may not serve: what the group has committed, where the log ends, and
 * how old the first record is between the two.
 *
 * Only scrapes cause looks, at most one in ten seconds: a call to the coordinator and one to each leader. A record is
 * read only of a partition where something is left of what was there at the look before.
 */
export class UnreadWatch {
  readonly #options: UnreadOptions;
  #last = NOTHING;
  #isLooking = false;

  constructor(options: UnreadOptions) {
    this.#options = options;
  }

  /** What the last look has found, which is from the scrape before. This one causes the next. */
  get oldest(): Vitals['groupUnread'] {
    const sinceMs = this.#options.runtime.monotonicMs() - this.#last.atMs;
    if (sinceMs >= LOOK_MS && !this.#isLooking) void this.#look();
    return sinceMs < NEWS_MS ? this.#last.oldest : [];
  }

  async #look(): Promise<void> {
    const { cluster, runtime, log, groupId, topic, partitions: count } = this.#options;
    const atMs = runtime.monotonicMs();
    const partitions = Array.from({ length: count() }, (_, partition) => partition);
    this.#isLooking = true;
    try {
      const committed = await committedOffsets({ cluster, runtime }, groupId, topic, partitions);
      const ends = await this.#ends(partitions);
      const before = atMs - this.#last.atMs < NEWS_MS ? this.#last.ends : NOTHING.ends;
      const oldest: { partition: number; milliseconds: number }[] = [];
      for (const [partition, end] of ends) {
        const next = committed.get(partition)?.offset ?? 0;
        if (next >= Math.min(end, before.get(partition) ?? end)) continue;
        const milliseconds = await this.#ageFrom(partition, next, end);
        if (milliseconds !== undefined) oldest.push({ partition, milliseconds });
      }
      this.#last = { atMs, ends, oldest };
    } catch (error) {
      log.debug({ error: describeError(error) }, 'could not look for requests that nobody answers');
    } finally {
      this.#isLooking = false;
    }
  }

  /**
   * Where partitions end, open transactions included. A partition whose leader is unknown, or does not answer, is left
   * out: nothing can be sent to it either.
   */
  async #ends(partitions: readonly number[]): Promise<ReadonlyMap<number, number>> {
    const { cluster, topic } = this.#options;
    const led = new Map<number, number[]>();
    const finding = partitions.map(async (partition) => {
      const leader = await cluster.leader(topic, partition, TIMEOUT_MS);
      led.set(leader, [...(led.get(leader) ?? []), partition]);
    });
    await Promise.allSettled(finding);
    const asking = [...led].map(async ([node, own]) => {
      const isolation = 'read_uncommitted';
      const query = own.map((partition) => ({ topic, partition, timestampMs: END }));
      return await cluster.call(node, 'control', TIMEOUT_MS, (link) =>
        link.call('listOffsets', { isolation, partitions: query }),
      );
    });
    const answers = await Promise.allSettled(asking);
    const found = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value.partitions : []));
    const ends = found.flatMap(({ partition, errorCode, offset }): [number, number][] =>
      errorCode === undefined ? [[partition, offset]] : [],
    );
    if (ends.length < partitions.length) cluster.markStale(topic);
    return new Map(ends);
  }

  /** The age of the first record from an offset on, by its time in the topic; undefined if there is none. */
  async #ageFrom(partition: number, offset: number, end: number): Promise<number | undefined> {
    const { cluster, runtime, topic } = this.#options;
    const isolation = 'read_uncommitted';
    const place = { topic, partition, timeoutMs: TIMEOUT_MS };
    const start = await offsetAt(cluster, runtime, { ...place, isolation }, START);
    let from = Math.max(start, offset);
    for (let reads = 0; from < end && reads < MOST_READS; reads += 1) {
      const query = { ...place, offset: from, maxBytes: READ_BYTES, isolation, purpose: 'entries' } as const;
      const { fetched, node } = await fetchAt(cluster, runtime, query);
      if (fetched.errorCode !== undefined) throw partitionError(cluster, { ...place, node }, fetched.errorCode);
      const { records, next } = await decodeBatches(fetched, from, isolation, () => runtime.nextTurn());
      const [first] = records;
      if (first !== undefined) return Math.max(0, runtime.wallMs() - first.timestampMs);
      if (next === from) return undefined;
      from = next; // there were only markers
    }
    return undefined;
  }
}
