import { meaningOf } from '../wire/error-codes.ts';
import { kafkaErrorCode } from '../wire/kafka-error.ts';
import type { FetchedPartition, FetchPosition, FetchRequest, FetchResponse, SessionStep } from '../wire/record-apis.ts';
import { keyOf } from './followed-partition.ts';

/**
 * What need not be said again.
 *
 * A fetch names each partition with its position, and the response repeats each one with its bounds, though a moment
 * later nearly all of that is the same. A fetch of a thousand partitions that finds nothing costs much more than one of
 * eight, on both sides. Kafka's answer is a fetch session (KIP-227): the broker remembers what is fetched, a request
 * names what changed, and a response has only the partitions with news.
 *
 * The trap is that two memories can differ, in silence. A partition that the reader believes to be in the session and
 * the broker does not is never read again, and looks like one without records. One that the reader no longer wants
 * returns records that nobody asked for, and one whose position changed here alone returns the wrong ones. No error
 * shows any of that.
 *
 * So everything that is known of the broker's memory is in this class, and it holds only as long as request and
 * response follow each other without a gap:
 *
 * - What was sent counts because it was answered. After any other end of a fetch the session is dropped, and the next
 *   fetch names everything and asks for a new one.
 * - Each fetch has a number. A broker that has restarted, that has dropped the session to make room, or that has missed
 *   a fetch refuses the next one, which is not news of any partition: everything is named again at once.
 * - A partition that the response leaves out has no records and the bounds that it had. That is believed only of one
 *   whose bounds this session has shown since its last error. Any other, and a partition that is not in the session,
 *   show that the memories differ, and that ends it.
 * - A broker that has no room for a session returns the ID 0. Then each fetch names everything, as if there were none.
 */

/** A partition to fetch, and from where. */
export interface WantedPartition {
  /** See `keyOf`. */
  readonly key: string;
  readonly topic: string;
  readonly partition: number;
  readonly fetchFrom: number;
}

export interface FetchLimits extends Pick<FetchRequest, 'maxWaitMs' | 'maxBytes' | 'isolation'> {
  readonly maxBytesPerPartition: number;
}

export interface SessionResponse {
  /**
   * Of each wanted partition, in that order; one that the response lacks has MALFORMED_RESPONSE. Undefined where
   * nothing was read, since the broker throttles.
   */
  readonly partitions: readonly (FetchedPartition | undefined)[];
  /** The first that the broker filled with records, which is the one that always gets a whole batch. */
  readonly first: FetchedPartition | undefined;
}

/** What the broker remembers of a partition. */
interface Remembered {
  position: FetchPosition;
  /** The last fetch that wanted it. */
  fetch: number;
  /** The response that leaves it out stands for this; undefined until its bounds have been shown. */
  unchanged: FetchedPartition | undefined;
  /** In the response in hand. */
  news: FetchedPartition | undefined;
}

/** After it a new session begins. */
const LAST_EPOCH = 0x7fff_ffff;
const NO_RECORDS = Buffer.alloc(0);

/** The fetches from one broker over one connection, one at a time. */
export class FetchSession {
  #id = 0;
  /** The number of the next fetch; 0 names everything. */
  #epoch = 0;
  #fetches = 0;
  readonly #remembered = new Map<string, Remembered>();

  /**
   * Fetches what is wanted, by what `send` returns. The keys must be unique. Rejects as `send` does, which is called
   * once more if the broker does not know the session.
   */
  async fetch(
    wanted: readonly WantedPartition[],
    limits: FetchLimits,
    send: (request: FetchRequest) => Promise<FetchResponse>,
  ): Promise<SessionResponse> {
    const epoch = this.#epoch;
    const { request, asked } = this.#request(wanted, limits);
    this.#epoch = 0; // unless it is answered
    try {
      return this.#answered(epoch, asked, await send(request));
    } catch (error) {
      if (epoch === 0 || meaningOf(kafkaErrorCode(error)).sessionIsOver !== true) throw error;
      return await this.fetch(wanted, limits, send);
    }
  }

  #request(wanted: readonly WantedPartition[], { maxBytesPerPartition: maxBytes, ...limits }: FetchLimits) {
    if (this.#epoch === 0) this.#remembered.clear();
    this.#fetches += 1;
    const partitions: FetchPosition[] = [];
    const asked = wanted.map((one) => {
      const known = this.#remembered.get(one.key) ?? this.#remember(one.key);
      known.fetch = this.#fetches;
      const { topic, partition, fetchFrom: offset } = one;
      if (known.position.offset !== offset || known.position.maxBytes !== maxBytes) {
        known.position = { topic, partition, offset, maxBytes };
        partitions.push(known.position);
      }
      return known;
    });
    const session: SessionStep = { id: this.#id, epoch: this.#epoch, forgotten: this.#forget(wanted.length) };
    return { request: { ...limits, partitions, session }, asked };
  }

  #remember(key: string): Remembered {
    const added = { position: NOWHERE, fetch: 0, unchanged: undefined, news: undefined };
    this.#remembered.set(key, added);
    return added;
  }

  /** Drops all but the partitions of this fetch, which are so many, and returns them. */
  #forget(wanted: number): FetchPosition[] {
    if (this.#remembered.size === wanted) return [];
    const forgotten = [...this.#remembered].filter(([, { fetch }]) => fetch !== this.#fetches);
    for (const [key] of forgotten) this.#remembered.delete(key);
    return forgotten.map(([, { position }]) => position);
  }

  #answered(epoch: number, asked: readonly Remembered[], response: FetchResponse): SessionResponse {
    const { sessionId, partitions, throttleMs } = response;
    let isSound = epoch === 0 || sessionId === this.#id;
    this.#id = sessionId;
    for (const one of partitions) {
      const known = this.#remembered.get(keyOf(one));
      if (known === undefined) isSound = false;
      else known.news = one;
    }
    const isUnread = partitions.length === 0 && throttleMs > 0;
    const found = asked.map((known) => {
      if (isUnread) return undefined;
      const state = known.news ?? known.unchanged;
      isSound &&= state !== undefined;
      if (known.news !== undefined) known.unchanged = unchangedAfter(known.news);
      known.news = undefined; // its records are not held any longer
      return state ?? missing(known.position);
    });
    if (isSound && sessionId !== 0) this.#epoch = epoch === LAST_EPOCH ? 0 : epoch + 1;
    return { partitions: found, first: partitions.find(({ records }) => records.length > 0) };
  }
}

/** What a response means that leaves the partition out after this one; nothing after an error. */
function unchangedAfter(news: FetchedPartition): FetchedPartition | undefined {
  if (news.errorCode !== undefined) return undefined;
  return news.records.length === 0 ? news : { ...news, aborted: [], records: NO_RECORDS };
}

/** No position is equal to it. */
const NOWHERE: FetchPosition = { topic: '', partition: -1, offset: Number.NaN, maxBytes: 0 };

function missing({ topic, partition }: FetchPosition): FetchedPartition {
  const errorCode = 'MALFORMED_RESPONSE';
  const bounds = { highWatermark: -1, lastStableOffset: -1, logStartOffset: -1 };
  return { topic, partition, errorCode, ...bounds, aborted: [], records: NO_RECORDS };
}
