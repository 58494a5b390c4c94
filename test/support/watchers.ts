/** Every wait of a test has a timeout, so that a failing test still stops its workers. */
const WAIT_MS = 60_000;

export interface Wait<T> {
  /** What is waited for, with the state of affairs, for the message when it does not come. */
  readonly what: () => string;
  /** The value, or undefined while it is not there; what it throws rejects. */
  readonly look: () => T | undefined;
  readonly timeoutMs?: number | undefined;
}

/** Those who wait for something that changes, and look again at each change. */
export class Watchers {
  readonly #looks = new Set<() => void>();

  changed(): void {
    for (const look of [...this.#looks]) look();
  }

  /** Resolves with what `look` finds, now or after a change; rejects when that takes longer than `timeoutMs`. */
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
    const late = () => reject(new Error(`not within ${timeoutMs} ms: ${what()}`));
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
