/** Decompressing one MiB takes about 2 ms at most. */
const BYTES_PER_TURN = 1_048_576;
/** The fixed cost of a piece, in bytes. */
const PIECE_BYTES = 2_000;

/** Yields to the event loop between the pieces of a body that is decompressed. */
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
