import { promisify } from 'node:util';
import { gunzip, zstdDecompress } from 'node:zlib';

/** Why a record batch can't be read, now or ever. */
export class UnreadableBatch extends Error {}

/** What a batch may inflate to: four times what the request topic takes at all. */
export const MAX_INFLATED_BYTES = 4 * 1_048_576;

const CODEC_MASK = 0x07;
const NAMES = ['uncompressed', 'gzip', 'snappy', 'lz4', 'zstd'] as const;
const REMEDY = 'set compression.type=uncompressed on the topic, so that the broker stores what it can check';

/** Output is bounded while it is made: one MiB of input can claim to be hundreds. */
const INFLATE: Partial<Record<(typeof NAMES)[number], (body: Buffer) => Promise<Buffer>>> = {
  gzip: (body) => promisify(gunzip)(body, { maxOutputLength: MAX_INFLATED_BYTES }),
  zstd: (body) => promisify(zstdDecompress)(body, { maxOutputLength: MAX_INFLATED_BYTES }),
};

/**
 * The records of a batch, uncompressed. `attributes` are the batch's own. Rejects with UnreadableBatch for a codec that
 * is not read (snappy, lz4), for damaged input, and for more output than the bound.
 *
 * The request topic stores its records uncompressed, which is checked at the start; this is for what is found when
 * somebody changes that later.
 */
export async function inflate(attributes: number, body: Buffer): Promise<Buffer> {
  const codec = attributes & CODEC_MASK;
  if (codec === 0) return body;
  const name = NAMES[codec];
  const decompress = name === undefined ? undefined : INFLATE[name];
  if (decompress === undefined) throw new UnreadableBatch(`${name ?? `codec ${codec}`} is not read: ${REMEDY}`);
  try {
    return await decompress(body);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    const why = code === 'ERR_BUFFER_TOO_LARGE' ? `holds more than ${MAX_INFLATED_BYTES} bytes` : 'is damaged';
    throw new UnreadableBatch(`a ${name} batch ${why}: ${REMEDY}`, { cause: error });
  }
}
