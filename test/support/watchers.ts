/** Each wait has a timeout, so that a test whose event never comes still stops its workers. */
const WAIT_MS = 240_000;

export interface Wait<T> {
  /** Describes the awaited event and the present state, for the message at the timeout. */
  readonly what: () => string;
  /** Returns the value, or undefined to wait on; an error that it throws ends the wait. */
  readonly look: () => T | undefined;
  readonly timeoutMs?: number | undefined;
}

/** Waits for conditions that are checked again at each change. */
export class Watchers {
  readonly #looks = new Set<() => void>();

  changed(): void {
    for (const look of [...this.#looks]) look();
  }

  /** Resolves with what `look` returns, now or after a change; rejects after `timeoutMs`. */
  async wait<T>({ what, look, timeoutMs = WAIT_MS }: Wait<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const lookAgain = () => {
      try {
        const found = look();
        if (found !== undefined) resolve(found);
      } catch (error) {
        reject(error);
      }
    };
    const late = () => reject(new Error(`still waiting after ${timeoutMs} ms for ${what()}`));
    const timer = setTimeout(late, timeoutMs);
    this.#looks.add(lookAgain);
    lookAgain();
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#looks.delete(lookAgain);
    }
  }
}
