import type { IdRange } from '../core/generator.ts';
import type { WallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';

/** The IDs of one response: their ranges in order, and when they were allocated. */
export interface Allocated {
  readonly ranges: readonly IdRange[];
  readonly generatedAt: WallMs;
}

/** The worker's allocator, which the API shares with the pipeline. */
export interface AllocationSource {
  allocate(counts: readonly number[]): Promise<readonly Allocated[]>;
}

export interface AllocationQueueOptions {
  readonly source: AllocationSource;
  /** Maximum number of IDs in the queue of all callers together, and so twice that of a caller that is alone. */
  readonly maxWaitingIds: number;
  readonly monotonicMs: () => number;
}

const MAX_WAITING = 1_024;
/** Beyond this wait, a client is better off with another worker. */
const MAX_WAIT_MS = 2_000;
/**
 * IDs that a caller may take in a round: a tenth of the default MAX_COUNT, which delays others by a few milliseconds.
 */
const QUANTUM = 10_000;

interface Waiting {
  readonly share: Share;
  readonly count: number;
  readonly sinceMs: number;
  readonly taken: PromiseWithResolvers<Allocated>;
}

/** What a caller has in the queue, including the request in progress. */
interface Share {
  readonly name: string;
  /** In order of arrival, without the request in progress. */
  readonly waiting: Waiting[];
  requests: number;
  ids: number;
  /** IDs that it may still take in this round. */
  deficit: number;
}

/**
 * Passes HTTP requests to the allocator one at a time, so that the pipeline's partitions never compete with more than
 * one of them. Bounded in requests, IDs and time.
 *
 * Callers take turns by IDs, not by requests (deficit round robin of Shreedhar and Varghese, 1995): a caller waits at
 * most for one request of each other one, however many they have. A caller may have one request here, and more as long
 * as it holds no more than is left in the queue, thus half of it if it is alone, so that others always find room
 * (dynamic thresholds of Choudhury and Hahne).
 */
export class AllocationQueue {
  readonly #options: AllocationQueueOptions;
  readonly #shares = new Map<string, Share>();
  /** The callers with waiting requests; the one whose turn is next is first. */
  readonly #round = new Set<Share>();
  #requests = 0;
  #ids = 0;
  #isWorking = false;

  constructor(options: AllocationQueueOptions) {
    this.#options = options;
  }

  /** Allocates IDs. Rejects with OVERLOADED, and with the allocator's errors. */
  take(caller: string, count: number): Promise<Allocated> {
    const share = this.#shares.get(caller) ?? { name: caller, waiting: [], requests: 0, ids: 0, deficit: 0 };
    const refusal = this.#refusal(share, count);
    if (refusal !== undefined) return Promise.reject(refusal);
    this.#hold(share, 1, count);
    const waiting = { share, count, sinceMs: this.#options.monotonicMs(), taken: Promise.withResolvers<Allocated>() };
    share.waiting.push(waiting);
    if (!this.#round.has(share)) share.deficit = QUANTUM;
    this.#round.add(share);
    if (!this.#isWorking) void this.#work();
    return waiting.taken.promise;
  }

  #refusal({ requests, ids }: Share, count: number): IdallocError | undefined {
    const { maxWaitingIds } = this.#options;
    const left = { requests: MAX_WAITING - this.#requests - 1, ids: maxWaitingIds - this.#ids - count };
    const isAbove = requests + 1 > left.requests || ids + count > left.ids;
    if (left.requests >= 0 && (requests === 0 || !isAbove)) return undefined;
    const own = left.requests < 0 ? '' : `, ${requests} for ${ids} of this caller`;
    return overloaded(`${this.#requests} requests for ${this.#ids} IDs are waiting${own}`);
  }

  #hold(share: Share, requests: 1 | -1, ids: number): void {
    share.requests += requests;
    share.ids += ids;
    this.#requests += requests;
    this.#ids += ids;
    if (share.requests === 0) this.#shares.delete(share.name);
    else this.#shares.set(share.name, share);
  }

  async #work(): Promise<void> {
    this.#isWorking = true;
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      const { share, count, taken } = next;
      try {
        taken.resolve(await this.#allocate(next));
      } catch (error) {
        taken.reject(error);
      }
      this.#hold(share, -1, -count);
    }
    this.#isWorking = false;
  }

  /**
   * Takes the next request from the queue. A caller whose turn is too short for its request gets more in the next
   * round.
   */
  #next(): Waiting | undefined {
    for (const share of this.#round) {
      const [first] = share.waiting;
      if (first !== undefined && first.count > share.deficit) {
        this.#round.delete(share);
        share.deficit += QUANTUM;
        this.#round.add(share); // visited again, after the others
        continue;
      }
      share.waiting.shift();
      share.deficit -= first?.count ?? 0;
      if (share.waiting.length === 0) this.#round.delete(share);
      return first;
    }
    return undefined;
  }

  async #allocate({ count, sinceMs }: Waiting): Promise<Allocated> {
    const { source, monotonicMs } = this.#options;
    if (monotonicMs() - sinceMs > MAX_WAIT_MS) throw overloaded(`the request waited longer than ${MAX_WAIT_MS} ms`);
    const [batch] = await source.allocate([count]);
    if (batch === undefined) throw new RangeError('the allocator returned fewer batches than requested');
    return batch;
  }
}

function overloaded(what: string): IdallocError {
  return new IdallocError('OVERLOADED', `${what}: retry, or use another worker`);
}
