import { KafkaError } from './kafka-error.ts';

/** No response is larger: fetches ask for at most half of it. */
export const MAX_RESPONSE_BYTES = 100 * 1024 * 1024;

const LENGTH_BYTES = 4;
/** A response begins with the correlation number of its request. */
const LEAST_BYTES = 4;
/** The first bytes of a TLS alert. */
const TLS_ALERT = Buffer.of(0x15, 0x03);

/** Splits what a broker sends into responses: a length of 4 bytes, then as many bytes. */
export class Frames {
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  /** The bytes needed before the next response can be complete. */
  #needed = LENGTH_BYTES;

  /**
   * The responses that this chunk completes, without their lengths; views where they arrived in one piece. Throws
   * MALFORMED_RESPONSE for an impossible length: nothing after it can be read.
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
  if (length >= LEAST_BYTES && length <= MAX_RESPONSE_BYTES) return length;
  const isTls = bytes.subarray(at, at + TLS_ALERT.length).equals(TLS_ALERT);
  throw new KafkaError('MALFORMED_RESPONSE', isTls ? 'it answers with TLS' : 'the server there is not a Kafka broker');
}
