import { promisify } from 'node:util';
import zlib from 'node:zlib';
import { snappyUncompressor } from 'hysnappy';
import type { ZSTDDecoder } from 'zstddec';
import { damaged, UnreadableBatch } from './cursor.ts';

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
  ['gzip', byZlib(promisify(zlib.gunzip), gzipBytes)],
  ['snappy', decompressSnappy],
  ['lz4', decompressLz4],
  // Node has it from 22.15 on.
  [
    'zstd',
    typeof zlib.zstdDecompress === 'function'
      ? byZlib(promisify(zlib.zstdDecompress), zstdBytes)
      : decompressZstdByWasm,
  ],
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

/** `declared`: what the body says that it decompresses to; undefined if it says nothing. */
function byZlib(decompressBody: ByZlib, declared: (body: Buffer) => number | undefined): Decompress {
  return async (body, maxOutputLength) => {
    try {
      const expected = declared(body);
      // With one byte more than it takes: a full chunk is followed by another one. Of several frames, one has said it.
      const chunkSize = expected === undefined ? chunkBytes(body) : Math.min(expected, maxOutputLength) + 1;
      const least = Math.max(Math.min(body.length, MAX_CHUNK_BYTES), MIN_CHUNK_BYTES);
      return await decompressBody(body, { maxOutputLength, chunkSize: Math.max(chunkSize, least) });
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      throw code === 'ERR_BUFFER_TOO_LARGE' ? tooLarge(maxOutputLength, { cause: error }) : error;
    }
  };
}

const MIN_CHUNK_BYTES = 16_384;
const MAX_CHUNK_BYTES = 262_144;

/** The last field of the format, modulo 2^32 (RFC 1952). */
function gzipBytes(body: Buffer): number | undefined {
  return body.length < 4 ? undefined : body.readUInt32LE(body.length - 4);
}

/** The bytes of the field `Frame_Content_Size` by its flag, and what its value is counted from (RFC 8878). */
const CONTENT_SIZES = [
  { bytes: 1, from: 0 },
  { bytes: 2, from: 256 },
  { bytes: 4, from: 0 },
  { bytes: 6, from: 0 }, // of 8 bytes, whose highest are never set
] as const;
const DICTIONARY_BYTES = [0, 1, 2, 4] as const;

/** From the head of a frame: magic, flags, window unless the frame is a single segment, dictionary, size. */
function zstdBytes(body: Buffer): number | undefined {
  const flags = body[4] ?? 0;
  const isSingleSegment = (flags & 0x20) !== 0;
  const size = CONTENT_SIZES[flags >> 6];
  const at = 5 + (isSingleSegment ? 0 : 1) + (DICTIONARY_BYTES[flags & 0x03] ?? 0);
  if (size === undefined || (flags >> 6 === 0 && !isSingleSegment) || at + size.bytes > body.length) return undefined;
  return size.from + body.readUIntLE(at, size.bytes);
}

/** Each chunk of output costs a round trip to another thread, and its memory. */
function chunkBytes(body: Buffer): number {
  return Math.min(Math.max(4 * body.length, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES);
}

/** An error in a compressed batch; the message continues "a <codec> batch …". */
class CodecError extends UnreadableBatch {}

function tooLarge(maxBytes: number, options?: ErrorOptions): CodecError {
  return new CodecError(`holds more than ${maxBytes} bytes`, options);
}

/** The package that decompresses a codec can't be loaded. */
export function noCodec(name: string, cause: unknown): CodecError {
  const reason = `needs the package ${name} (npm install ${name}), which is missing or not built for this platform`;
  return new CodecError(reason, { cause });
}

/** Decompressing one MiB takes about 2 ms at most. */
const BYTES_PER_TURN = 1_048_576;
/** The fixed cost of a piece, in bytes. */
const PIECE_BYTES = 2_000;

/** Yields to the event loop between the pieces of a body that is decompressed. */
class PieceTurns {
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

/** The head of xerial's framing, that of the Java library: magic, version, compatible version. */
const SNAPPY_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00]);
const FRAME_HEAD_BYTES = SNAPPY_MAGIC.length + 8;

/**
 * Decompresses Snappy in either framing that Kafka's clients write: one raw block, or xerial's blocks, each after its
 * length in four bytes. A block declares its decompressed size, and the library writes no more than that.
 */
async function decompressSnappy(body: Buffer, maxBytes: number, nextTurn: () => Promise<void>): Promise<Buffer> {
  if (!body.subarray(0, SNAPPY_MAGIC.length).equals(SNAPPY_MAGIC)) return snappyBlock(body, maxBytes, 0);
  const turns = new PieceTurns(nextTurn);
  const pieces: Buffer[] = [];
  let bytes = 0;
  for (let at = FRAME_HEAD_BYTES; at < body.length; ) {
    if (at + 4 > body.length) throw damaged();
    const start = at + 4;
    at = start + body.readUInt32BE(at);
    if (at > body.length) throw damaged();
    const piece = snappyBlock(body.subarray(start, at), maxBytes, bytes);
    pieces.push(piece);
    bytes += piece.length;
    await turns.after(piece.length);
  }
  return Buffer.concat(pieces, bytes);
}

/** The library is WebAssembly: a malicious block can only damage that instance's memory. */
let uncompress: ReturnType<typeof snappyUncompressor> | undefined;

function snappyBlock(block: Buffer, maxBytes: number, before: number): Buffer {
  const declared = declaredBytes(block);
  if (before + declared > maxBytes) throw tooLarge(maxBytes);
  uncompress ??= snappyUncompressor();
  try {
    const { buffer, byteOffset, byteLength } = uncompress(block, declared);
    return Buffer.from(buffer, byteOffset, byteLength);
  } catch (error) {
    uncompress = undefined; // the instance may be in an inconsistent state
    throw damaged({ cause: error });
  }
}

/** The decompressed size, at the start of a block in up to five bytes. */
function declaredBytes(block: Buffer): number {
  let value = 0;
  for (let i = 0, scale = 1; i < 5; i += 1, scale *= 0x80) {
    const byte = block[i];
    if (byte === undefined) break;
    value += (byte & 0x7f) * scale;
    if (byte < 0x80) return value;
  }
  throw damaged();
}

const LZ4_MAGIC = 0x184d2204;
/** The flags in the first byte after the magic. */
const FLAGS = { version: 0xc0, independent: 0x20, blockChecksums: 0x10, contentSize: 0x08, dictionary: 0x01 } as const;
const VERSION = 0x40;
/** The most that a block may decompress to, by the size code in the second byte. */
const BLOCK_BYTES: Readonly<Record<number, number>> = { 4: 65_536, 5: 262_144, 6: 1_048_576, 7: 4_194_304 };
/** Bit of a block's length: the block is not compressed. */
const STORED = 0x8000_0000;
/** How far back a block can refer. */
const WINDOW_BYTES = 65_536;
/** The most that one byte of a block can decompress to. */
const MAX_RATIO = 255;
/** More than the usual compression ratio of records. */
const EXPECTED_RATIO = 4;

type Lz4 = Pick<typeof import('lz4-napi'), 'uncompressSync'>;

/**
 * A variable, and marks at its import: so bundlers leave the import alone. The package is native, and may be missing.
 */
const LZ4_PACKAGE = 'lz4-napi';

/**
 * Decompresses an LZ4 frame: a head, blocks that each follow their length in four bytes, and a length of 0. Blocks are
 * decompressed one by one, each into no more than the head allows. Checksums are ignored: the record batch has its own.
 */
async function decompressLz4(body: Buffer, maxBytes: number, nextTurn: () => Promise<void>): Promise<Buffer> {
  const lz4 = await lz4Library();
  const turns = new PieceTurns(nextTurn);
  const frame = readFrameHead(body);
  const output = new Output(EXPECTED_RATIO * body.length, maxBytes);
  for (let at = frame.blocksFrom; ; ) {
    if (at + 4 > body.length) throw damaged();
    const length = body.readUInt32LE(at);
    if (length === 0) return output.bytes();
    const start = at + 4;
    const end = start + (length % STORED);
    if (end > body.length) throw damaged();
    const block = body.subarray(start, end);
    const window = frame.isLinked ? output.window() : undefined;
    const piece = length >= STORED ? block : lz4Block(lz4, block, frame.blockBytes, window);
    output.add(piece);
    await turns.after(piece.length);
    at = end + frame.blockChecksumBytes;
  }
}

interface FrameHead {
  /** Blocks may refer to earlier blocks. */
  readonly isLinked: boolean;
  readonly blockBytes: number;
  readonly blockChecksumBytes: number;
  readonly blocksFrom: number;
}

/** Throws RangeError if the head is cut off, which counts as damaged, too. */
function readFrameHead(body: Buffer): FrameHead {
  if (body.readUInt32LE(0) !== LZ4_MAGIC) throw damaged();
  const flags = body.readUInt8(4);
  const blockBytes = BLOCK_BYTES[(body.readUInt8(5) >> 4) & 0x07];
  if ((flags & FLAGS.version) !== VERSION || (flags & FLAGS.dictionary) !== 0 || blockBytes === undefined) {
    throw damaged();
  }
  const contentSizeBytes = (flags & FLAGS.contentSize) === 0 ? 0 : 8;
  return {
    isLinked: (flags & FLAGS.independent) === 0,
    blockBytes,
    blockChecksumBytes: (flags & FLAGS.blockChecksums) === 0 ? 0 : 4,
    blocksFrom: 6 + contentSizeBytes + 1,
  };
}

function lz4Block(lz4: Lz4, block: Buffer, blockBytes: number, window: Buffer | undefined): Buffer {
  const sized = Buffer.allocUnsafe(4 + block.length);
  // The library allocates this size, and fails beyond it.
  sized.writeUInt32LE(Math.min(blockBytes, block.length * MAX_RATIO), 0);
  sized.set(block, 4);
  try {
    return lz4.uncompressSync(sized, window);
  } catch (error) {
    throw damaged({ cause: error });
  }
}

/** The output so far, in one buffer that grows. */
class Output {
  readonly #maxBytes: number;
  #buffer: Buffer;
  #length = 0;

  constructor(expectedBytes: number, maxBytes: number) {
    this.#maxBytes = maxBytes;
    this.#buffer = Buffer.allocUnsafe(Math.min(expectedBytes, maxBytes));
  }

  add(piece: Buffer): void {
    const length = this.#length + piece.length;
    if (length > this.#maxBytes) throw tooLarge(this.#maxBytes);
    if (length > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.min(2 * length, this.#maxBytes));
      larger.set(this.bytes());
      this.#buffer = larger;
    }
    this.#buffer.set(piece, this.#length);
    this.#length = length;
  }

  window(): Buffer {
    return this.#buffer.subarray(Math.max(0, this.#length - WINDOW_BYTES), this.#length);
  }

  bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }
}

let loading: Promise<Lz4> | undefined;

/** Loaded on first use, since it is native and not available for every platform. */
function lz4Library(): Promise<Lz4> {
  loading ??= import(/* webpackIgnore: true */ /* @vite-ignore */ LZ4_PACKAGE).catch((error: unknown) => {
    loading = undefined;
    throw noCodec(LZ4_PACKAGE, error);
  });
  return loading;
}

/**
 * Decompresses Zstandard where Node can't. The output buffer has the size passed in, so a size declared by a frame
 * allocates nothing; 4 MiB take about 6 ms. The library is loaded on first use.
 */
export async function decompressZstdByWasm(body: Buffer, maxBytes: number): Promise<Buffer> {
  const decoder = await zstdLibrary();
  const { buffer, byteOffset, byteLength } = decoder.decode(body, maxBytes);
  // The library returns no bytes on any error, and no batch is empty.
  if (byteLength === 0) throw new CodecError(`is damaged, or holds more than ${maxBytes} bytes`);
  return Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength);
}

async function zstdLibrary(): Promise<ZSTDDecoder> {
  try {
    const zstddec = await import('zstddec');
    const decoder = new zstddec.ZSTDDecoder();
    await decoder.init(); // once for the process
    return decoder;
  } catch (error) {
    throw noCodec('zstddec', error);
  }
}
