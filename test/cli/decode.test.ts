import { describe, expect, test } from 'vitest';
import { drawBits, idTable } from '../../src/cli/id-view.ts';
import { viewId } from '../../src/codec/id-view.ts';
import { PRESETS, type PresetName, presetLayout } from '../../src/core/presets.ts';
import { cli } from './harness.ts';

const GOLDEN = {
  value_string: '55325805773398016',
  value_hex: '00c48e86f8092000',
  breakdown: { timestamp_ms: 1_780_416_300_000, datacenter_id: 4, worker_id: 18, sequence_number: 0 },
};

const DRAWN = `0x00c48e86f8092000 = 55325805773398016
0 00000001100010010001110100001101111100000 00100 10010 000000000000
│ │                                         │     │     └── bits 11..0   sequence    0
│ │                                         │     └──────── bits 16..12  worker      18
│ │                                         └────────────── bits 21..17  datacenter  4
│ └──────────────────────────────────────────────────────── bits 62..22  timestamp   13190700000 = 2026-06-02T16:05:00.000Z
└────────────────────────────────────────────────────────── bit 63       sign        0
`;

describe('idalloc decode', () => {
  test.each([
    '55325805773398016',
    '0x00c48e86f8092000',
    '0x00C48E86F8092000',
    '0xc48e86f8092000',
    '055325805773398016',
  ])('reads %s as the golden vector', async (text) => {
    const { code, out } = await cli(['decode', '--json', text]);
    expect(code).toBe(0);
    expect(JSON.parse(out)).toEqual({ layout: 'default', epoch_ms: 1_767_225_600_000, ids: [GOLDEN] });
    expect(out.indexOf('\n')).toBe(out.length - 1);
  });

  test('shows a table with a line for each ID', async () => {
    const { out } = await cli(['decode', '55325805773398016', '4095']);
    const [table] = out.split('\n\n');
    expect(table?.split('\n').map((line) => line.trim().split(/\s+/))).toEqual([
      ['value', 'hex', 'time', 'datacenter', 'worker', 'sequence'],
      ['55325805773398016', '00c48e86f8092000', '2026-06-02T16:05:00.000Z', '4', '18', '0'],
      ['4095', '0000000000000fff', '2026-01-01T00:00:00.000Z', '0', '0', '4095'],
    ]);
  });

  test('draws each field at its position', async () => {
    const { out } = await cli(['decode', '55325805773398016']);
    expect(out.slice(out.indexOf('0x'))).toBe(DRAWN);
  });

  test.each(Object.keys(PRESETS) as PresetName[])('draws all 64 bits of %s, each under its field', (name) => {
    const layout = presetLayout(name, { epochMs: 0 });
    const id = (1n << 63n) - 2n;
    const [, bits = '', ...legend] = drawBits(layout, id).split('\n');
    expect(bits.replaceAll(' ', '')).toBe(id.toString(2).padStart(64, '0'));
    const sum = legend
      .filter((line) => line !== '')
      .reduce((sum, line) => {
        const [, high, low, value] = /bits? (\d+)(?:\.\.(\d+))? +[a-z]+ +(\d+)/.exec(line) ?? [];
        return sum + (BigInt(value ?? 0) << BigInt(low ?? high ?? 0));
      }, 0n);
    expect(sum).toBe(id);
    for (const { label } of layout.fields) expect(legend.join('\n')).toContain(label);
  });

  test('draws at most four IDs', async () => {
    expect((await cli(['decode', '1', '2', '3', '4', '5'])).out).not.toContain('bits');
  });

  test('reads the layout of the environment, unless another one is named', async () => {
    const env = { LAYOUT: 'sonyflake', LAYOUT_EPOCH_MS: '1' };
    expect(JSON.parse((await cli(['decode', '--json', '1'], env)).out)).toMatchObject({
      layout: 'sonyflake',
      epoch_ms: 1,
    });
    expect(JSON.parse((await cli(['decode', '--json', '--layout', 'discord', '1'], env)).out)).toMatchObject({
      layout: 'discord',
      epoch_ms: 1_420_070_400_000,
    });
    for (const wrong of [{ LAYOUT: 'none' }, { LAYOUT: 'constructor' }, { LAYOUT_EPOCH_MS: 'x' }]) {
      expect(await cli(['decode', '1'], wrong)).toMatchObject({ code: 2, out: '' });
    }
  });

  test('accepts other field widths for bwmarrin only', async () => {
    const bits = ['--worker-bits', '8', '--sequence-bits', '10'];
    const { out } = await cli(['decode', '--json', '--layout', 'bwmarrin', ...bits, String((5n << 10n) | 7n)]);
    expect(JSON.parse(out).ids[0].breakdown).toMatchObject({ worker_id: 5, sequence_number: 7 });
    expect((await cli(['decode', ...bits, '1'])).code).toBe(2);
  });

  test('decodes an ID with the layout that the options name', async () => {
    const { out } = await cli([
      'decode',
      '--json',
      '--layout',
      'sonyflake',
      String((7n << 24n) | (5n << 16n) | 65_535n),
    ]);
    expect(JSON.parse(out).ids[0].breakdown).toEqual({
      timestamp_ms: Date.UTC(2014, 8, 1) + 70,
      datacenter_id: 0,
      worker_id: 65_535,
      sequence_number: 5,
    });
  });

  test('needs an epoch for a layout whose own has run out', async () => {
    const without = await cli(['decode', '--layout', 'baidu', '1']);
    expect(without).toMatchObject({ code: 2, out: '', err: expect.stringContaining('--epoch-ms') });
    const given = await cli(['decode', '--layout', 'baidu', '--epoch-ms', '1767225600000', '1']);
    expect(given.code).toBe(0);
  });

  test.each(['', 'x', '-1', '1.5', '1e3', '0x', '0xg', '18446744073709551616', '0x10000000000000000', ' 1'])(
    "refuses '%s' as no ID",
    async (text) => {
      expect(await cli(['decode', '--', text])).toMatchObject({ code: 2, out: '' });
    },
  );

  test('rejects a number that is not an ID of the layout, and names the layout', async () => {
    const { code, out, err } = await cli(['decode', '--layout', 'js-safe', '1', String(2n ** 53n + 1n)]);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toContain("9007199254740993 is not an ID of layout 'js-safe'");
  });
});

describe('the view of an ID', () => {
  test('has no breakdown if the layout is unknown', () => {
    expect(viewId(undefined, 5n)).toEqual({ value_string: '5', value_hex: '0000000000000005', breakdown: null });
    expect(idTable([viewId(undefined, 5n)])).toContain('?');
  });

  test('shows a time outside the range of dates as a number', () => {
    const layout = presetLayout('default', { epochMs: 8_000_000_000_000_000 });
    expect(() => idTable([viewId(layout, 2n ** 63n - 1n)])).not.toThrow();
  });
});
