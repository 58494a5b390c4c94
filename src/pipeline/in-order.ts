/** Up to which offset everything is done, where parts may end in any order. */
export class InOrder {
  readonly #onDone: (through: number) => void;
  /** The parts that have begun and are not done, in the order of their offsets. */
  readonly #parts: { readonly until: number; isDone: boolean; readonly then: (() => void) | undefined }[] = [];

  /** `onDone`: everything below this offset is done. */
  constructor(onDone: (through: number) => void) {
    this.#onDone = onDone;
  }

  /**
   * What comes next, up to but not including an offset. Returns what to call when it is done; `then` is called when all
   * before is, too.
   */
  add(until: number, then?: () => void): () => void {
    const part = { until, isDone: false, then };
    this.#parts.push(part);
    return () => {
      part.isDone = true;
      this.#advance();
    };
  }

  #advance(): void {
    for (let first = this.#parts[0]; first?.isDone === true; first = this.#parts[0]) {
      this.#parts.shift();
      this.#onDone(first.until);
      first.then?.();
    }
  }
}
