/** Runs one piece of work at a time, in the order of the calls. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve();

  /** Starts the work when all earlier work has ended, successfully or not, and settles as it does. */
  run<T>(work: () => T | Promise<T>): Promise<T> {
    const turn = this.#last.then(() => work());
    this.#last = turn.catch(() => undefined); // the caller gets the error; the next turn only waits
    return turn;
  }
}
