import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { viewId } from '../../src/codec/id-view.ts';
import { compose, formatHex } from '../../src/core/layout.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { ticks, wallMs } from '../../src/core/units.ts';
import { idBody, idsBody, RisingId } from '../../src/http/id-body.ts';
import { LoopShare } from '../../src/http/loop-share.ts';
import { formOf } from '../../src/http/parameters.ts';
import { KEYS } from '../support/form-samples.ts';

const share = () => new LoopShare(() => performance.now());
const textOf = async (body: ReturnType<typeof idsBody>) => (typeof body === 'string' ? body : await text(body));
function onPush(body: Readable, called: (chunk: unknown) => void): void {
  const push = body.push.bind(body);
  body.push = (chunk) => {
    called(chunk);
    return push(chunk);
  };
}
const GENERATED_AT = wallMs(1_780_416_300_123);

describe.each(['default', 'js-safe', 'instagram', 'sonyflake', 'discord', 'baidu'] as const)('in layout %s', (name) => {
  const layout = presetLayout(name, name === 'baidu' ? { epochMs: 1_767_225_600_000 } : {});
  const worker = Math.min(17, layout.maxWorker);
  const rangeAt = (at: number, sequence: number, count: number) => {
    const parts = { ticks: ticks(at), datacenter: Math.min(4, layout.maxDatacenter), worker, sequence };
    return { first: compose(layout, parts), count };
  };

  test.each([1, 100, 101, 399, 400, 401, 1_000])('the body with %i IDs is the JSON of their views', async (count) => {
    const most = layout.sequencesPerTick - 1;
    const ranges = [];
    let left = count;
    for (let at = 1_000; left > 0; at += 1) {
      const size = Math.min(left, most);
      ranges.push(rangeAt(at, layout.sequencesPerTick - size, size));
      left -= size;
    }
    const ids = ranges.flatMap((range) =>
      Array.from({ length: range.count }, (_, k) => viewId(layout, range.first + BigInt(k) * layout.step)),
    );
    const body = await textOf(idsBody(layout, { ranges, generatedAt: GENERATED_AT }, share()));
    expect(body).toBe(JSON.stringify({ ids, generated_at: new Date(GENERATED_AT).toISOString() }));
    const { value_string: id, value_number: number } = ids[0] ?? {};
    const one = number === undefined ? { id } : { id, id_number: number };
    expect(idBody(layout, { ranges, generatedAt: GENERATED_AT })).toBe(JSON.stringify(one));
    expect(typeof number).toBe(name === 'js-safe' ? 'number' : 'undefined');
  });
});

test('a large body is streamed with backpressure', async () => {
  const layout = presetLayout('default');
  const ranges = Array.from({ length: 25 }, (_, i) => ({ first: BigInt(i + 1) << 22n, count: 4_096 }));
  const body = idsBody(layout, { ranges, generatedAt: GENERATED_AT }, share());
  if (typeof body === 'string') throw new TypeError('a body of 16 MB is no text');
  let pieces = 0;
  onPush(body, () => {
    pieces += 1;
  });
  body.read(0);
  for (let turn = 0; turn < 100; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  expect(pieces).toBeLessThanOrEqual(2);
  expect((await text(body)).length).toBeGreaterThan(15_000_000);
  expect(pieces).toBeGreaterThan(200);
});

test.each([
  ['ulid', 100],
  ['uuid4', 10],
] as const)('a body in form %s comes in pieces of %i IDs, so that none holds the event loop', async (name, most) => {
  const layout = presetLayout('default');
  const form = formOf({ form: name }, { layout, keys: KEYS });
  const ranges = [{ first: 1n << 22n, count: 4_096 }];
  const body = idsBody(layout, { ranges, generatedAt: GENERATED_AT }, share(), form);
  if (typeof body === 'string') throw new TypeError('a body of 4,096 IDs is no text');
  const counts: number[] = [];
  // A reader may get several pieces at once.
  onPush(body, (piece) => counts.push(String(piece).split('"value_form"').length - 1));
  await text(body);
  expect(counts.reduce((sum, count) => sum + count)).toBe(4_096);
  expect(Math.max(...counts)).toBe(most);
  const few = { ranges: [{ first: 1n << 22n, count: most + 1 }], generatedAt: GENERATED_AT };
  expect(typeof idsBody(layout, few, share(), form)).toBe('object');
});

test('writes each ID of a range as BigInt writes it, whatever digits a step changes', () => {
  const first = fc.oneof(
    fc.bigInt({ min: 0n, max: 2n ** 62n }),
    fc.bigInt({ min: 0n, max: 2_000n }), // fewer digits than are kept as texts
    fc.bigInt({ min: 1n, max: 2n ** 40n }).map((at) => at * 4_096_000n - 2n), // the last digits overflow soon
  );
  const step = fc.oneof(
    fc.constant(1n),
    fc.integer({ min: 0, max: 51 }).map((bits) => 1n << BigInt(bits)),
  );
  fc.assert(
    fc.property(first, step, (from, by) => {
      const [decimal, hex] = [new RisingId('d', 'decimal', from, by), new RisingId('h', 'hex', from, by)];
      for (let id = from, k = 0; k < 10; k += 1, id += by) {
        expect([decimal.next(), hex.next()]).toEqual([`d${id}`, `h${formatHex(id)}`]);
      }
    }),
  );
});
