import type { IdClient } from '../client/index.ts';

/** What @nestjs/terminus shows of the client. */
export interface IdallocHealth {
  readonly status: 'up' | 'down';
  /** IDs in the buffer. */
  readonly buffered: number;
  /** The client requests more when the buffer falls to this. */
  readonly lowWater: number;
  /** Requests without a reply. */
  readonly pending: number;
}

/**
 * A health indicator for @nestjs/terminus 11 and later. Use it for readiness, not for liveness: an empty buffer fills
 * when the workers answer again, and a restart would only empty a full one.
 */
export class IdallocHealthIndicator {
  readonly #client: IdClient;
  readonly #prefetch: boolean;

  /** @internal */
  constructor(client: IdClient, prefetch = true) {
    this.#client = client;
    this.#prefetch = prefetch;
  }

  /**
   * Down while the buffer is empty, which is when next() throws. A client without a buffer is always up. Never throws.
   */
  isHealthy<Key extends string = 'idalloc'>(key: Key = 'idalloc' as Key): Record<Key, IdallocHealth> {
    const { buffered, lowWater, pending } = this.#client.metrics();
    const status = buffered > 0 || !this.#prefetch ? 'up' : 'down';
    return { [key]: { status, buffered, lowWater, pending } } as Record<Key, IdallocHealth>;
  }
}
