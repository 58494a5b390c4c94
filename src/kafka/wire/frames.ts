import { KafkaFault } from './fault.ts';

/** No answer is larger: fetches ask for at most half of it, and what answers with more is no Kafka broker. */
export const MAX_ANSWER_BYTES = 100 * 1024 * 1024;

const LENGTH_BYTES = 4;
/** An answer begins with the number of its request. */
const LEAST_BYTES = 4;
/** The first bytes of a TLS record that refuses what it got. */
const TLS_ALERT = Buffer.of(0x15, 0x03);

/** Cuts what a broker sends into its answers: a length of 4 bytes, then as many bytes. */
export class Frames {
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  /** So many have to be there before there is anything to cut. */
  #needed = LENGTH_BYTES;

  /**
   * The answers that are whole with this chunk, without their lengths; views where they came in one piece. Throws
   * MALFORMED_ANSWER where a length can't be one: nothing behind it can be read.
   */
  push(chunk: Buffer): Buffer[] {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes < this.#needed) return [];
    const bytes = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    const frames: Buffer[] = [];
    let at = 0;
    this.#needed = LENGTH_BYTES;
    while (bytes.length - at >= LENGTH_BYTES) {
      const end = at + LENGTH_BYTES + lengthAt(bytes, at);
      if (end > bytes.length) {
        this.#needed = end - at;
        break;
      }
      frames.push(bytes.subarray(at + LENGTH_BYTES, end));
      at = end;
    }
    this.#chunks.length = 0;
    if (at < bytes.length) this.#chunks.push(bytes.subarray(at));
    this.#bytes = bytes.length - at;
    return frames;
  }
}

function lengthAt(bytes: Buffer, at: number): number {
  const length = bytes.readInt32BE(at);
  if (length >= LEAST_BYTES && length <= MAX_ANSWER_BYTES) return length;
  const isTls = bytes.subarray(at, at + TLS_ALERT.length).equals(TLS_ALERT);
  throw new KafkaFault('MALFORMED_ANSWER', isTls ? 'it answers with TLS' : 'what answers is no Kafka broker');
}
