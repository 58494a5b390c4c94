import type { EachBatchPayload } from 'kafkajs';

/** A handler that makes no progress for longer goes on outside of kafkajs' loop, which it would hold up. */
const PATIENCE_MS = 1_000;

/**
 * One partition while this worker has it, in one generation of the group. Everything that comes late, a batch, an
 * answer, a commit, is checked against it: once ended, a session never acts again.
 */
export class Session {
  readonly partition: number;
  /** False for good once the generation has ended. */
  current = true;
  /** The coordinator has refused a heartbeat: a new generation is due, so no more parts are begun in this one. */
  interrupted = false;
  /** The batch in hand; nothing else may start before it has ended and rested. */
  inHand: Promise<void> | undefined;
  /** The offset to go on from, once known, and the one committed last. */
  next: number | undefined;
  committed: number | undefined;
  /** Commits in the generation of the session's last batch, without trying again in a later one. */
  commit: EachBatchPayload['commitOffsetsIfNecessary'] | undefined;

  constructor(partition: number) {
    this.partition = partition;
  }
}

/** Runs out when nothing renews it for a second. */
export class Patience implements Disposable {
  readonly over: Promise<'late'>;
  readonly #timer: NodeJS.Timeout;

  constructor() {
    const { promise, resolve } = Promise.withResolvers<'late'>();
    this.over = promise;
    this.#timer = setTimeout(() => resolve('late'), PATIENCE_MS);
  }

  renew(): void {
    this.#timer.refresh();
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }
}
