import { readFileSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { gzipSync, constants as zlib, zstdCompressSync } from 'node:zlib';
import fc from 'fast-check';
import { snappyCompressor } from 'hysnappy';
import { compressFrameSync, compressSync } from 'lz4-napi';
import { describe, expect, it, test } from 'vitest';
import {
  decompress,
  decompressZstdByWasm,
  MAX_DECOMPRESSED_BYTES,
  noCodec,
} from '../../../src/kafka/records/codecs.ts';
import { decodeBatches, UNREADABLE } from '../../../src/kafka/records/decode.ts';
import { examples } from '../../support/examples.ts';
import { batchOf, CODEC, lz4Frame, plain, storedSnappy, xerial } from '../../support/record-bytes.ts';
import { seeded } from '../../support/seeded.ts';

const decode = (records: Buffer, from = 0) => decodeBatches({ records, aborted: [] }, from, 'read_committed', nextTurn);

const snappyCompress = snappyCompressor();
const rawSnappy = (bytes: Buffer) => Buffer.from(snappyCompress(bytes));
/** The library prepends the size. */
const lz4Block = (block: Buffer, before?: Buffer) => compressSync(block, before).subarray(4);
const LINKED = 0x40;

const ENCODERS: [name: string, codec: keyof typeof CODEC, compress: (bytes: Buffer) => Buffer][] = [
  ['gzip', 'gzip', (bytes) => gzipSync(bytes)],
  ['gzip without compression', 'gzip', (bytes) => gzipSync(bytes, { level: 0 })],
  ['snappy', 'snappy', rawSnappy],
  ['snappy without compression', 'snappy', storedSnappy],
  ['snappy in the framing of Java', 'snappy', xerial(rawSnappy)],
  ['snappy in the framing of Java, in small blocks', 'snappy', xerial(rawSnappy, 1_000)],
  ['lz4', 'lz4', (bytes) => compressFrameSync(bytes)],
  ['lz4 with checksums', 'lz4', (bytes) => compressFrameSync(bytes, { contentChecksum: true, blockChecksums: true })],
  ['lz4 without compression', 'lz4', (bytes) => lz4Frame(bytes)],
  ['lz4 with linked blocks', 'lz4', (bytes) => lz4Frame(bytes, { flags: LINKED, compress: lz4Block })],
  [
    'lz4 with small linked blocks, checksums and the size',
    'lz4',
    (bytes) => lz4Frame(bytes, { flags: LINKED | 0x18, blockBytes: 700, compress: lz4Block }),
  ],
  [
    'lz4 with large blocks',
    'lz4',
    (bytes) => lz4Frame(bytes, { blockSize: 7, blockBytes: 2 ** 22, compress: (block) => lz4Block(block) }),
  ],
  ['zstd', 'zstd', (bytes) => zstdCompressSync(bytes)],
  ['zstd at its best', 'zstd', (bytes) => zstdCompressSync(bytes, { params: { [zlib.ZSTD_c_compressionLevel]: 22 } })],
  ['zstd with a checksum', 'zstd', (bytes) => zstdCompressSync(bytes, { params: { [zlib.ZSTD_c_checksumFlag]: 1 } })],
];

/** Half compressible, half random. */
function mixed(length: number, seed = 1): Buffer {
  const bytes = Buffer.alloc(length);
  let state = seed;
  for (let i = 0; i < length; i += 1) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[i] = (i >> 12) % 2 === 0 ? state >>> 24 : i >> 9;
  }
  return bytes;
}

describe('a batch compressed by a broker', () => {
  const captured: Record<string, string> = JSON.parse(
    readFileSync(new URL('broker-batches.json', import.meta.url), 'utf8'),
  );

  it.each(Object.keys(CODEC))('of %s is read', async (codec) => {
    const batch = Buffer.from(captured[codec] ?? '', 'base64');
    expect(batch.readInt16BE(21) & 7).toBe(CODEC[codec as keyof typeof CODEC]);
    const { records, next } = await decode(batch);
    expect(next).toBe(120);
    for (const [i, { key, value, headers }] of records.entries()) {
      expect([String(key), String(value), String(headers.name)]).toEqual([`key-${i}`, 'x'.repeat(600), `value-${i}`]);
    }
    expect(records).toHaveLength(120);
  });
});

describe.each(ENCODERS)('a body compressed by %s', (_, codec, compress) => {
  it('decompresses to the original bytes', async () => {
    const large = fc.record({ length: fc.nat(300_000), seed: fc.nat() }).map(({ length, seed }) => mixed(length, seed));
    const bytes = fc.uint8Array({ minLength: 1, maxLength: 2_000 }).map((array) => Buffer.from(array));
    await fc.assert(
      fc.asyncProperty(fc.oneof({ weight: 4, arbitrary: bytes }, large), async (body) => {
        if (body.length === 0) return;
        expect((await decompress(CODEC[codec], compress(body), nextTurn)).equals(body)).toBe(true);
      }),
      { numRuns: examples(30, 5) },
    );
  });

  it('is read from a batch', async () => {
    const fetched = batchOf([plain('a'), plain('b')], { attributes: CODEC[codec], baseOffset: 5n }, compress);
    const { records } = await decode(fetched);
    expect(records.map(({ offset, value }) => [offset, String(value)])).toEqual([
      [5, 'a'],
      [6, 'b'],
    ]);
  });

  it('is decompressed up to the limit, and rejected beyond it', async () => {
    const most = Buffer.alloc(MAX_DECOMPRESSED_BYTES, 'most');
    expect((await decompress(CODEC[codec], compress(most), nextTurn)).equals(most)).toBe(true);
    for (const bytes of [MAX_DECOMPRESSED_BYTES + 1, 4 * MAX_DECOMPRESSED_BYTES]) {
      const bomb = decompress(CODEC[codec], compress(Buffer.alloc(bytes)), nextTurn);
      await expect(bomb).rejects.toThrow(`a ${codec} batch holds more than ${MAX_DECOMPRESSED_BYTES} bytes: set compr`);
    }
  });

  it('is rejected, or decompresses to other bytes, when it is truncated or changed, and later batches are still read', async () => {
    const body = mixed(3_000);
    const compressed = compress(body);
    const change = fc.record({ at: fc.nat(compressed.length - 1), byte: fc.nat(255), end: fc.nat(compressed.length) });
    await fc.assert(
      fc.asyncProperty(change, async ({ at, byte, end }) => {
        const changed = Buffer.from(compressed);
        changed[at] = byte;
        for (const bad of [changed, compressed.subarray(0, end)]) {
          await decompress(CODEC[codec], bad, nextTurn).catch(({ message }) =>
            expect(message).toMatch(/batch (is d|hol)/),
          );
        }
        expect((await decompress(CODEC[codec], compressed, nextTurn)).equals(body)).toBe(true);
      }),
      { numRuns: examples(300) },
    );
  });
});

describe('an unreadable compressed batch', () => {
  test.each([
    ['damaged gzip', 'gzip', () => Buffer.alloc(9), /^a gzip batch is damaged: set compression/],
    ['damaged snappy', 'snappy', () => Buffer.alloc(9, 0xff), /^a snappy batch is damaged: /],
    ['snappy that says less than it holds', 'snappy', lying(8), /^a snappy batch is damaged: /],
    ['snappy that says more than it holds', 'snappy', lying(12), /^a snappy batch is damaged: /],
    [
      'a framing of snappy that is cut off',
      'snappy',
      (bytes) => xerial(rawSnappy)(bytes).subarray(0, 25),
      /is damaged/,
    ],
    ['damaged lz4', 'lz4', () => Buffer.alloc(9), /^a lz4 batch is damaged: /],
    ['lz4 of another version', 'lz4', (bytes) => lz4Frame(bytes, { flags: 0xa0 }), /^a lz4 batch is damaged: /],
    ['lz4 with a dictionary', 'lz4', (bytes) => lz4Frame(bytes, { flags: 0x61 }), /^a lz4 batch is damaged: /],
    [
      'lz4 with another size of blocks',
      'lz4',
      (bytes) => lz4Frame(bytes, { blockSize: 3 }),
      /^a lz4 batch is damaged: /,
    ],
    ['lz4 without its end', 'lz4', (bytes) => lz4Frame(bytes).subarray(0, -4), /^a lz4 batch is damaged: /],
    ['lz4 with a block larger than it says', 'lz4', tooLargeBlock, /^a lz4 batch is damaged: /],
    ['damaged zstd', 'zstd', () => Buffer.alloc(9), /^a zstd batch is damaged: /],
  ] as [string, keyof typeof CODEC, (bytes: Buffer) => Buffer, RegExp][])(
    'because of %s becomes a record at each end that says why, and reading continues',
    async (_, codec, compress, reason) => {
      const records = [plain('a'), plain('b')];
      const bad = batchOf(records, { baseOffset: 5n, attributes: CODEC[codec] }, compress);
      const around = [batchOf([plain('before')]), bad, batchOf([plain('behind')], { baseOffset: 7n })];
      const { records: found } = await decode(Buffer.concat(around));
      expect(found.map(({ offset, value }) => [offset, value === null ? null : String(value)])).toEqual([
        [0, 'before'],
        [5, null],
        [6, null],
        [7, 'behind'],
      ]);
      for (const { headers } of found.slice(1, 3)) expect(String(headers[UNREADABLE])).toMatch(reason);
    },
  );

  /** The two records have 18 bytes. */
  function lying(declared: number) {
    return (bytes: Buffer) => {
      const compressed = storedSnappy(bytes);
      compressed[0] = declared + (declared > 10 ? 10 : 0);
      return compressed;
    };
  }

  function tooLargeBlock(): Buffer {
    return lz4Frame(Buffer.alloc(100_000), { blockBytes: 100_000, compress: (block) => lz4Block(block) });
  }
});

it('resolves references of an lz4 block to far earlier blocks', async () => {
  const once = seeded('lz4').bytes(30_000);
  const body = Buffer.concat([once, once, once, once]);
  for (const blockBytes of [1_000, 40_000, 65_536]) {
    const compressed = lz4Frame(body, { flags: LINKED, blockBytes, compress: lz4Block });
    expect(compressed.length).toBeLessThan(2 * once.length); // so it does repeat
    expect((await decompress(CODEC.lz4, compressed, nextTurn)).equals(body)).toBe(true);
  }
});

describe('zstd where Node has no support for it', () => {
  it('decompresses to the original bytes', async () => {
    for (const body of [Buffer.from('a'), mixed(5_000), mixed(300_000), Buffer.alloc(MAX_DECOMPRESSED_BYTES, 'most')]) {
      expect((await decompressZstdByWasm(zstdCompressSync(body), MAX_DECOMPRESSED_BYTES)).equals(body)).toBe(true);
    }
  });

  it('is rejected when it is damaged, truncated or too large, and later batches are still read', async () => {
    const good = zstdCompressSync(mixed(5_000));
    const bad = [
      Buffer.alloc(0),
      Buffer.alloc(9),
      good.subarray(0, -1),
      zstdCompressSync(Buffer.alloc(MAX_DECOMPRESSED_BYTES + 1)),
      zstdCompressSync(Buffer.alloc(64 * MAX_DECOMPRESSED_BYTES)),
    ];
    for (const body of bad) {
      const refused = decompressZstdByWasm(body, MAX_DECOMPRESSED_BYTES);
      await expect(refused).rejects.toThrow(`is damaged, or holds more than ${MAX_DECOMPRESSED_BYTES} bytes`);
      expect((await decompressZstdByWasm(good, MAX_DECOMPRESSED_BYTES)).equals(mixed(5_000))).toBe(true);
    }
  });
});

describe('a fetch of compressed batches', () => {
  it.each(ENCODERS.filter(([name]) => /framing of Java|linked/.test(name)))(
    'lets others run between the blocks of %s',
    async (_, codec, compress) => {
      let turns = 0;
      await decompress(CODEC[codec], compress(mixed(MAX_DECOMPRESSED_BYTES)), async () => {
        turns += 1;
      });
      expect(turns).toBeGreaterThan(2);
    },
  );

  it('that would decompress to too much is read in part, and the rest from where that ended', async () => {
    const value = { key: null, value: Buffer.alloc(3_000_000) };
    const fetched = Buffer.concat(
      Array.from({ length: 20 }, (_, i) => {
        const baseOffset = BigInt(i);
        return batchOf([value], { attributes: CODEC.zstd, baseOffset }, (bytes) => zstdCompressSync(bytes));
      }),
    );
    let from = 0;
    for (let fetches = 1; from < 20; fetches += 1) {
      const { records, next } = await decode(fetched, from);
      expect(records.map(({ offset }) => offset)).toEqual(Array.from({ length: next - from }, (_, i) => from + i));
      expect(records.length).toBeGreaterThan(0);
      expect(records.length).toBeLessThanOrEqual(2);
      expect(fetches).toBeLessThanOrEqual(10);
      from = next;
    }
    expect(from).toBe(20);
  });
});

test('a codec whose package is missing is reported with the command that installs it', () => {
  const { message } = noCodec('lz4-napi', new Error('Cannot find package'));
  expect(message).toContain('needs the package lz4-napi (npm install lz4-napi)');
});
