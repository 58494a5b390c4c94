import { describe, expect, test } from 'vitest';
import { compose, type Layout, layoutText } from '../../src/core/layout.ts';
import { customLayout } from '../../src/core/layout-choice.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { ticks } from '../../src/core/units.ts';
import { decode, firstIdAt } from '../../src/ids/ids.ts';
import { stage, turns } from './stage.ts';

const EPOCH_MS = 1_767_225_600_000;
const custom = customLayout({ fields: 'timestamp:42,sequence:9,worker:12', epochMs: EPOCH_MS });
const numbers = customLayout({ fields: 'timestamp:32,worker:6,sequence:15', tickMs: 1_000, epochMs: EPOCH_MS });
const jsSafe = presetLayout('js-safe');

/** A client of workers whose IDs have this layout, from `first` on. */
function staged(layout: Layout | undefined, text?: string, first = 0n) {
  return stage({}, { layout, layoutText: text, nextId: first });
}

describe('the layout of the IDs received', () => {
  test.each(['default', 'js-safe', 'sonyflake', 'instagram', 'discord', 'region'] as const)(
    'is %s by the fingerprint alone, with any epoch',
    async (name) => {
      const layout = presetLayout(name, { epochMs: EPOCH_MS + 7 });
      const { client } = await staged(layout);
      expect(client.layout?.fingerprint).toBe(layout.fingerprint);
      expect((await client.request({ count: 1 })).layout?.fields).toEqual(layout.fields);
    },
  );

  test("is a custom one if the reply's header describes it, and its IDs can be decoded", async () => {
    const parts = { ticks: ticks(1_000), datacenter: 0, worker: 77, sequence: 5 };
    const { client } = await staged(custom, layoutText(custom), compose(custom, parts));
    expect(client.layout).toEqual(custom);
    const { layout } = await client.request({ count: 1 });
    expect(decode(client.next(), layout)).toEqual({
      timestampMs: EPOCH_MS + 1_000,
      datacenterId: 0,
      workerId: 77,
      sequence: 5,
    });
  });

  test('is unknown before the first reply, and when the text does not match the fingerprint', async () => {
    const { client } = await stage({ prefetch: false });
    expect(client.layout).toBeUndefined();
    for (const text of [undefined, 'x', layoutText(numbers)]) {
      const { client: misled } = await staged(custom, text);
      expect([misled.layout, (await misled.request({ count: 1 })).layout]).toEqual([undefined, undefined]);
    }
  });
});

test('an unknown layout is not mistaken for the default one', () => {
  const unknown = [undefined] as unknown as [];
  expect(() => decode(1n, ...unknown)).toThrow(expect.objectContaining({ code: 'INVALID_ID' }));
  expect(() => firstIdAt(new Date(), ...unknown)).toThrow(expect.objectContaining({ code: 'INVALID_ID' }));
  expect(decode(1n)).toEqual(decode(1n, presetLayout('default')));
});

describe('IDs as numbers', () => {
  test.each([
    ['js-safe', jsSafe, undefined],
    ['a custom layout of 53 bits', numbers, layoutText(numbers)],
  ] as const)('are returned by next, take and takeAsync in %s', async (_, layout, text) => {
    const { client } = await staged(layout, text, 2n ** 52n);
    expect([client.nextNumber(), ...client.takeNumbers(2)]).toEqual([2 ** 52, 2 ** 52 + 1, 2 ** 52 + 2]);
    expect(await client.takeNumbersAsync(1)).toEqual([2 ** 52 + 3]);
    expect(client.next()).toBe(2n ** 52n + 4n);
  });

  test.each([
    ['the default layout, however small its first IDs are', presetLayout('default'), undefined, /layout 'default'/],
    ['a custom layout of more bits', custom, layoutText(custom), /layout 'custom'/],
    ['a layout that is not known', custom, undefined, /does not know/],
  ] as const)('are refused in %s, and no ID is taken', async (_, layout, text, message) => {
    const { client } = await staged(layout, text);
    const before = client.buffered;
    for (const refused of [() => client.nextNumber(), () => client.takeNumbers(1)]) {
      expect(refused).toThrow(
        expect.objectContaining({ code: 'CONFIG_INVALID', message: expect.stringMatching(message) }),
      );
    }
    await expect(client.takeNumbersAsync(1)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
    expect([client.buffered, client.next()]).toEqual([before, 0n]);
  });

  test('are rejected permanently after an ID above 2^53, whatever its layout', async () => {
    const { client } = await staged(jsSafe, undefined, 2n ** 53n - 3_999n);
    expect(() => client.nextNumber()).toThrow(/exceed 2\^53/);
  });

  test('are refused to callers that wait, as soon as the layout is known to have larger IDs', async () => {
    const { client, workers } = await stage({}, { answering: false, layout: presetLayout('default') });
    expect(() => client.nextNumber()).toThrow(expect.objectContaining({ code: 'BUFFER_EMPTY' }));
    const refused = expect(client.takeNumbersAsync(1)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
    for (const { correlationId, count } of workers.sent) workers.answer(correlationId, count);
    await turns();
    await refused;
  });
});
