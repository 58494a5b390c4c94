import { promisify } from 'node:util';
import zlib from 'node:zlib';
import { inflateLz4 } from './lz4.ts';
import { inflateSnappy } from './snappy.ts';
import { CodecFault, tooLarge, UnreadableBatch } from './unreadable.ts';
import { inflateZstdByWasm } from './zstd.ts';

/** What a batch may inflate to: four times what the request topic takes at all. */
export const MAX_INFLATED_BYTES = 4 * 1_048_576;

const REMEDY = 'set compression.type=uncompressed on the topic, so that the broker stores what it can check';

/**
 * Output is bounded while it is made, since one MiB of input can claim to be hundreds. zlib's own functions work in
 * other threads; the others hold the event loop for a few milliseconds at most.
 */
type Inflate = (body: Buffer, maxBytes: number, nextTurn: () => Promise<void>) => Promise<Buffer>;

const CODECS: readonly (readonly [name: string, inflate: Inflate] | undefined)[] = [
  undefined, // none
  ['gzip', byZlib(promisify(zlib.gunzip))],
  ['snappy', inflateSnappy],
  ['lz4', inflateLz4],
  // Node has it from 22.15 on.
  ['zstd', typeof zlib.zstdDecompress === 'function' ? byZlib(promisify(zlib.zstdDecompress)) : inflateZstdByWasm],
];

/**
 * The records of a compressed batch. Rejects with UnreadableBatch for a codec that nobody knows, for damaged input, and
 * for more output than MAX_INFLATED_BYTES.
 */
export async function inflate(codec: number, body: Buffer, nextTurn: () => Promise<void>): Promise<Buffer> {
  const known = CODECS[codec];
  if (known === undefined) throw new UnreadableBatch(`codec ${codec} is not read: ${REMEDY}`);
  const [name, inflateBody] = known;
  try {
    return await inflateBody(body, MAX_INFLATED_BYTES, nextTurn);
  } catch (error) {
    const fault = error instanceof CodecFault ? error.message : 'is damaged';
    throw new UnreadableBatch(`a ${name} batch ${fault}: ${REMEDY}`, { cause: error });
  }
}

type ByZlib = (body: Buffer, options: { maxOutputLength: number; chunkSize: number }) => Promise<Buffer>;

function byZlib(inflateBody: ByZlib): Inflate {
  return async (body, maxOutputLength) => {
    try {
      return await inflateBody(body, { maxOutputLength, chunkSize: chunkBytes(body) });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      throw code === 'ERR_BUFFER_TOO_LARGE' ? tooLarge(maxOutputLength, { cause: error }) : error;
    }
  };
}

const MIN_CHUNK_BYTES = 16_384;
const MAX_CHUNK_BYTES = 262_144;

/** Each chunk of output costs a round through another thread, and its memory. */
function chunkBytes(body: Buffer): number {
  return Math.min(Math.max(4 * body.length, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES);
}
