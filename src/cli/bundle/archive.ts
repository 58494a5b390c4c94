import { gzipSync } from 'node:zlib';

/** A file of an archive. */
export interface ArchivedFile {
  /** Its path in the archive: at most 100 bytes of ASCII. */
  readonly path: string;
  readonly text: string;
}

const BLOCK = 512;
const MAX_PATH_BYTES = 100;
/** Readable to its owner alone, also once it is unpacked. */
const MODE = 0o600;

/**
 * A gzipped tar archive of texts, in the format ustar. Its header has a name, a mode, owner, group, size and time, a
 * sum of its own bytes and a type, each in a field of fixed width with numbers in octal; then come the bytes of the
 * file, filled up to a block, and two empty blocks at the end. That is all that small texts need, so no package is.
 *
 * Throws RangeError for a path that the format has no room for.
 */
export function tarGz(entries: readonly ArchivedFile[], timeMs: number): Buffer {
  const blocks = entries.flatMap(({ path, text }) => {
    const body = Buffer.from(text);
    const rest = (BLOCK - (body.length % BLOCK)) % BLOCK;
    return [header(path, body.length, timeMs), body, Buffer.alloc(rest)];
  });
  return gzipSync(Buffer.concat([...blocks, Buffer.alloc(2 * BLOCK)]));
}

function header(path: string, size: number, timeMs: number): Buffer {
  if (!/^[\x21-\x7e]+$/.test(path) || path.length > MAX_PATH_BYTES) throw new RangeError(`no path for a tar: ${path}`);
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, width: number) =>
    block.write(`${value.toString(8).padStart(width - 1, '0')}\0`, at, 'latin1');
  block.write(path, 0, 'latin1');
  octal(MODE, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(Math.floor(timeMs / 1_000), 136, 12);
  block.write('        0', 148, 'latin1'); // the sum is made with spaces in its place; then the type: a file
  block.write('ustar\x0000', 257, 'latin1');
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return block;
}
