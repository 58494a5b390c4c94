import { PieceTurns } from './turns.ts';
import { damaged, noCodec, tooLarge } from './unreadable.ts';

const MAGIC = 0x184d2204;
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
const PACKAGE = 'lz4-napi';

/**
 * Decompresses an LZ4 frame: a head, blocks that each follow their length in four bytes, and a length of 0. Blocks are
 * decompressed one by one, each into no more than the head allows. Checksums are ignored: the record batch has its own.
 */
export async function decompressLz4(body: Buffer, maxBytes: number, nextTurn: () => Promise<void>): Promise<Buffer> {
  const lz4 = await library();
  const turns = new PieceTurns(nextTurn);
  const frame = readHead(body);
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
    const piece = length >= STORED ? block : decompressBlock(lz4, block, frame.blockBytes, window);
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

function readHead(body: Buffer): FrameHead {
  if (body.length < 7 || body.readUInt32LE(0) !== MAGIC) throw damaged();
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

function decompressBlock(lz4: Lz4, block: Buffer, blockBytes: number, window: Buffer | undefined): Buffer {
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
function library(): Promise<Lz4> {
  loading ??= import(/* webpackIgnore: true */ /* @vite-ignore */ PACKAGE).catch((error: unknown) => {
    loading = undefined;
    throw noCodec(PACKAGE, error);
  });
  return loading;
}
