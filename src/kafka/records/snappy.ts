import { snappyUncompressor } from 'hysnappy';
import { PieceTurns } from './turns.ts';
import { damaged, tooLarge } from './unreadable.ts';

/** The head of xerial's framing, that of the Java library: magic, version, compatible version. */
const MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00]);
const FRAME_HEAD_BYTES = MAGIC.length + 8;

/**
 * Decompresses Snappy in either framing that Kafka's clients write: one raw block, or xerial's blocks, each after its
 * length in four bytes. A block declares its decompressed size, and the library writes no more than that.
 */
export async function decompressSnappy(body: Buffer, maxBytes: number, nextTurn: () => Promise<void>): Promise<Buffer> {
  if (!body.subarray(0, MAGIC.length).equals(MAGIC)) return decompressBlock(body, maxBytes, 0);
  const turns = new PieceTurns(nextTurn);
  const pieces: Buffer[] = [];
  let bytes = 0;
  for (let at = FRAME_HEAD_BYTES; at < body.length; ) {
    if (at + 4 > body.length) throw damaged();
    const start = at + 4;
    at = start + body.readUInt32BE(at);
    if (at > body.length) throw damaged();
    const piece = decompressBlock(body.subarray(start, at), maxBytes, bytes);
    pieces.push(piece);
    bytes += piece.length;
    await turns.after(piece.length);
  }
  return Buffer.concat(pieces, bytes);
}

/** The library is WebAssembly: a malicious block can only damage that instance's memory. */
let uncompress: ReturnType<typeof snappyUncompressor> | undefined;

function decompressBlock(block: Buffer, maxBytes: number, before: number): Buffer {
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
