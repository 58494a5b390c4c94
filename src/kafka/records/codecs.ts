import { promisify } from 'node:util';
import zlib from 'node:zlib';
import { decompressLz4 } from './lz4.ts';
import { decompressSnappy } from './snappy.ts';
import { CodecError, tooLarge, UnreadableBatch } from './unreadable.ts';
import { decompressZstdByWasm } from './zstd.ts';

/** The most that a batch may decompress to: four times the largest batch that the request topic accepts. */
export const MAX_DECOMPRESSED_BYTES = 4 * 1_048_576;

const REMEDY =
  'set compression.type=uncompressed on the topic, so that the broker enforces its size limit on uncompressed batches';

/**
 * The output is bounded while it is produced, since one MiB of input can expand to hundreds. zlib's own functions run
 * on other threads; the others block the event loop for a few milliseconds at most.
 */
type Decompress = (body: Buffer, maxBytes: number, nextTurn: () => Promise<void>) => Promise<Buffer>;

const CODECS: readonly (readonly [name: string, decompress: Decompress] | undefined)[] = [
  undefined, // none
  ['gzip', byZlib(promisify(zlib.gunzip))],
  ['snappy', decompressSnappy],
  ['lz4', decompressLz4],
  // Node has it from 22.15 on.
  ['zstd', typeof zlib.zstdDecompress === 'function' ? byZlib(promisify(zlib.zstdDecompress)) : decompressZstdByWasm],
];

/**
 * Decompresses the records of a batch. Rejects with UnreadableBatch for an unknown codec, for damaged input, and for
 * more output than MAX_DECOMPRESSED_BYTES.
 */
export async function decompress(codec: number, body: Buffer, nextTurn: () => Promise<void>): Promise<Buffer> {
  const known = CODECS[codec];
  if (known === undefined) throw new UnreadableBatch(`codec ${codec} is not supported: ${REMEDY}`);
  const [name, decompressBody] = known;
  try {
    return await decompressBody(body, MAX_DECOMPRESSED_BYTES, nextTurn);
  } catch (error) {
    const problem = error instanceof CodecError ? error.message : 'is damaged';
    throw new UnreadableBatch(`a ${name} batch ${problem}: ${REMEDY}`, { cause: error });
  }
}

type ByZlib = (body: Buffer, options: { maxOutputLength: number; chunkSize: number }) => Promise<Buffer>;

function byZlib(decompressBody: ByZlib): Decompress {
  return async (body, maxOutputLength) => {
    try {
      return await decompressBody(body, { maxOutputLength, chunkSize: chunkBytes(body) });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      throw code === 'ERR_BUFFER_TOO_LARGE' ? tooLarge(maxOutputLength, { cause: error }) : error;
    }
  };
}

const MIN_CHUNK_BYTES = 16_384;
const MAX_CHUNK_BYTES = 262_144;

/** Each chunk of output costs a round trip to another thread, and its memory. */
function chunkBytes(body: Buffer): number {
  return Math.min(Math.max(4 * body.length, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES);
}
