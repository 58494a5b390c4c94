import fc from 'fast-check';
import { expect, test } from 'vitest';
import { formatHex } from '../../src/core/layout.ts';
import { RisingId } from '../../src/http/rising-id.ts';

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
