/** As much work as inflating one MiB takes some 2 ms at most. */
const BYTES_PER_TURN = 1_048_576;
/** A piece costs as much as so many bytes, however small it is. */
const PIECE_BYTES = 2_000;

/** Lets others run between the pieces of a body that is inflated. */
export class PieceTurns {
  readonly #nextTurn: () => Promise<void>;
  #bytes = 0;

  constructor(nextTurn: () => Promise<void>) {
    this.#nextTurn = nextTurn;
  }

  async after(pieceBytes: number): Promise<void> {
    this.#bytes += pieceBytes + PIECE_BYTES;
    if (this.#bytes < BYTES_PER_TURN) return;
    this.#bytes = 0;
    await this.#nextTurn();
  }
}
