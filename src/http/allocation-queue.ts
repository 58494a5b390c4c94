import type { IdRange } from '../core/generator.ts';
import type { WallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';

/** The IDs of one response: their ranges in order, and when they were allocated. */
export interface IdBatch {
  readonly ranges: readonly IdRange[];
  readonly generatedAt: WallMs;
}

/** The worker's allocator, which the API shares with the pipeline. */
export interface IdSource {
  allocate(counts: readonly number[]): Promise<readonly IdBatch[]>;
}

export interface AllocationQueueOptions {
  readonly source: IdSource;
  /** Maximum number of IDs in the queue; a single request is always accepted. */
  readonly maxWaitingIds: number;
  readonly monotonicMs: () => number;
}

const MAX_WAITING = 512;
/** Beyond this wait, a client is better off with another worker. */
const MAX_WAIT_MS = 2_000;

/**
 * Passes HTTP requests to the allocator one at a time, so that the pipeline's partitions never compete with more than one of
 * them. Bounded in requests, IDs and time.
 */
export class AllocationQueue {
  readonly #options: AllocationQueueOptions;
  #tail: Promise<unknown> = Promise.resolve();
  #requests = 0;
  #ids = 0;

  constructor(options: AllocationQueueOptions) {
    this.#options = options;
  }

  /** Allocates IDs. Rejects with OVERLOADED, and with the allocator's errors. */
  async take(count: number): Promise<IdBatch> {
    const tooMany = this.#requests >= MAX_WAITING || this.#ids + count > this.#options.maxWaitingIds;
    if (this.#requests > 0 && tooMany) throw overloaded(`${this.#requests} requests for ${this.#ids} IDs are waiting`);
    this.#requests += 1;
    this.#ids += count;
    const turn = this.#tail.then(this.#turn(count));
    this.#tail = turn.catch(() => undefined); // the caller gets the error
    try {
      return await turn;
    } finally {
      this.#requests -= 1;
      this.#ids -= count;
    }
  }

  #turn(count: number): () => Promise<IdBatch> {
    const { source, monotonicMs } = this.#options;
    const sinceMs = monotonicMs();
    return async () => {
      if (monotonicMs() - sinceMs > MAX_WAIT_MS) throw overloaded(`the request waited longer than ${MAX_WAIT_MS} ms`);
      const [batch] = await source.allocate([count]);
      if (batch === undefined) throw new RangeError('the allocator returned fewer batches than requested');
      return batch;
    };
  }
}

function overloaded(what: string): IdallocError {
  return new IdallocError('OVERLOADED', `${what}: retry, or use another worker`);
}
