import type { IdRange } from '../core/generator.ts';
import type { WallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';

/** IDs of one answer: their ranges in order, and when they were made. */
export interface IdBatch {
  readonly ranges: readonly IdRange[];
  readonly generatedAt: WallMs;
}

/** What the API needs of the worker's one allocator; the pipeline takes from the same one. */
export interface IdSource {
  allocate(counts: readonly number[]): Promise<readonly IdBatch[]>;
}

export interface AllocationQueueOptions {
  readonly source: IdSource;
  /** Most IDs that may be waited for; a single request may always wait. */
  readonly maxWaitingIds: number;
  readonly monotonicMs: () => number;
}

const MAX_WAITING = 512;
/** Whoever comes to their turn later than this is better off with another worker. */
const MAX_WAIT_MS = 2_000;

/**
 * Requests over HTTP come to the allocator one after the other: however many there are, the pipeline, whose partitions
 * ask side by side, competes with one of them. Bounded in requests, IDs and time.
 */
export class AllocationQueue {
  readonly #options: AllocationQueueOptions;
  #tail: Promise<unknown> = Promise.resolve();
  #requests = 0;
  #ids = 0;

  constructor(options: AllocationQueueOptions) {
    this.#options = options;
  }

  /** A batch of new IDs. Rejects with OVERLOADED, and with what the allocator refuses for. */
  async take(count: number): Promise<IdBatch> {
    const tooMany = this.#requests >= MAX_WAITING || this.#ids + count > this.#options.maxWaitingIds;
    if (this.#requests > 0 && tooMany) throw overloaded(`${this.#requests} requests for ${this.#ids} IDs wait already`);
    this.#requests += 1;
    this.#ids += count;
    const turn = this.#tail.then(this.#turn(count));
    this.#tail = turn.catch(() => undefined); // told to the one who asked
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
      if (monotonicMs() - sinceMs > MAX_WAIT_MS) throw overloaded(`a turn did not come within ${MAX_WAIT_MS} ms`);
      const [batch] = await source.allocate([count]);
      if (batch === undefined) throw new RangeError('the allocator answered for fewer requests than it was asked');
      return batch;
    };
  }
}

function overloaded(what: string): IdallocError {
  return new IdallocError('OVERLOADED', `${what}: try again, or ask another worker`);
}
