import { describe, expect, test } from 'vitest';
import { loadEtcdConfig } from '../../src/config/config.ts';
import { PRESETS } from '../../src/core/presets.ts';
import { readPage } from '../support/docs.ts';
import { LAYOUT_ENVS } from '../support/layouts.ts';
import { cli } from './harness.ts';

/** The start of the day 2026-06-02; the clock of the harness shows 16:05. */
const TODAY_MS = Date.UTC(2026, 5, 2);
const FIELDS = 'timestamp:42,sequence:9,datacenter:2:region,worker:10';

async function figures(args: readonly string[], env = {}) {
  const { code, out } = await cli(['layout', ...args, '--json'], env);
  return { code, ...JSON.parse(out) };
}

describe('idalloc layout', () => {
  test('lists every preset with its capacity and limits', async () => {
    const { code, out } = await cli(['layout']);
    expect(code).toBe(0);
    const rows = out.split('\n').map((line) => line.trim().split(/ {2,}/));
    expect(rows.slice(1, 1 + Object.keys(PRESETS).length).map(([name]) => name)).toEqual(Object.keys(PRESETS));
    expect(rows[2]).toEqual([
      'js-safe',
      '41t 5w 7s',
      '1 ms',
      '2026-01-01',
      '2095-09-07',
      '128,000',
      '32',
      '1',
      '100,000',
      'yes',
    ]);
    expect(rows.find(([name]) => name === 'baidu')).toEqual(
      expect.arrayContaining(['LAYOUT_EPOCH_MS', '8.5 years later']),
    );
    const { layouts } = await figures([]);
    expect(layouts.map(({ fits_number }: { fits_number: boolean }) => fits_number).filter(Boolean)).toHaveLength(1);
  });

  test('draws one, with its end, its IDs per second, its workers and its order', async () => {
    const { code, out } = await cli(['layout', 'js-safe']);
    expect(code).toBe(0);
    expect(out).toContain('0 0000000000 00000001100010010001110100001101111100000 11111 0000000');
    for (const line of [
      'ends     2095-09-07T15:47:35.552Z: 69.7 years in total, 69.3 left',
      'IDs/s    128,000 per worker, 4,096,000 per pool of 32',
      'workers  32, no datacenter field',
      'order    by time, to 1 ms; within a tick by worker, sequence. The IDs of one worker always increase',
      'set      LAYOUT=js-safe',
    ]) {
      expect(out.split('\n')).toContain(line);
    }
  });

  test('shows custom fields as if they began today, and the variables that set them', async () => {
    expect(await figures(['--fields', FIELDS])).toEqual({
      code: 0,
      layout: 'custom',
      fields: FIELDS,
      bits: 63,
      tick_ms: 1,
      epoch_ms: TODAY_MS,
      sequence_start_below: 1,
      ends_ms: TODAY_MS + 2 ** 42,
      lasts_years: 139.4,
      years_left: 139.4,
      ids_per_second: 512_000,
      workers: 1_024,
      datacenters: 4,
      pool: { workers: 1_024, ids_per_second: 524_288_000 },
      max_count: 100_000,
      step: 4_096,
      fits_number: false,
      fingerprint: expect.stringMatching(/^[0-9a-f]{16}$/),
      settings: `LAYOUT=custom LAYOUT_FIELDS=${FIELDS} LAYOUT_EPOCH_MS=${TODAY_MS}`,
    });
  });

  test.each([
    ['js-safe', ['js-safe']],
    ['a preset with another epoch', ['sonyflake', '--epoch-ms', '5']],
    ['baidu', ['baidu']],
    ['bwmarrin with other bits, which no variable has', ['bwmarrin', '--worker-bits', '8', '--sequence-bits', '14']],
    ['a custom one', ['--fields', FIELDS, '--tick-ms', '20', '--epoch-ms', '7', '--sequence-start-below', '3']],
    ['a custom one that is a preset', ['--fields', 'timestamp:41,worker:5,sequence:7', '--epoch-ms', '1767225600000']],
  ])('names variables that give workers exactly this layout: %s', async (_, args) => {
    const { settings, fingerprint } = await figures(args);
    const env = Object.fromEntries(settings.split(' ').map((pair: string) => pair.split('=')));
    const others = { ETCD_ENDPOINTS: 'http://etcd:2379', DATACENTER_ID: '0' };
    expect(loadEtcdConfig({ ...others, ...env }).layout.fingerprint).toBe(fingerprint);
  });

  test('shows the layout of the environment', async () => {
    const { settings, fits_number: fits } = await figures(['custom'], LAYOUT_ENVS.seconds);
    const { DATACENTER_ID: _, ...variables } = LAYOUT_ENVS.seconds;
    expect(new Set(settings.split(' '))).toEqual(
      new Set(Object.entries(variables).map(([name, value]) => `${name}=${value}`)),
    );
    expect(fits).toBe(true);
  });

  test.each([
    ['has ended', ['js-safe', '--epoch-ms', '0', '--json'], 0],
    ['has ended', ['--fields', 'timestamp:16,worker:5,sequence:7', '--epoch-ms', '1767225600000'], 1],
    ['begins later', ['default', '--epoch-ms', '1893456000000'], 1],
  ])('exits with 1 for a layout that %s, and with 0 for one that can allocate: %j', async (message, args, code) => {
    const run = await cli(['layout', ...args]);
    expect(run.code).toBe(code);
    if (code === 1) expect(run.out).toContain(message);
  });

  test('warns about a layout that ends within ten years', async () => {
    expect((await cli(['layout', 'baidu'])).out).toContain('ends in 8.5 years');
    expect((await cli(['layout', 'instagram'])).out).not.toContain('ends in');
  });

  test.each([
    ['an unknown name', ['none'], /must be one of default, js-safe/],
    ['custom without fields', ['custom'], /--fields is required/],
    ['fields beside a preset', ['js-safe', '--fields', FIELDS], /--fields is for layout 'custom' only/],
    ['a tick beside a preset', ['js-safe', '--tick-ms', '2'], /--tick-ms is for layout 'custom' only/],
    ['text that is no fields', ['--fields', 'worker'], /role:bits/],
    [
      'fields that make no layout',
      ['--fields', 'worker:1,timestamp:41'],
      /--fields has 0 sequence.*--fields must begin/,
    ],
    ['a tick of no time', ['--fields', FIELDS, '--tick-ms', '0'], /--tick-ms/],
    [
      'a start past the sequence',
      ['--fields', FIELDS, '--sequence-start-below', '513'],
      /--sequence-start-below is 513/,
    ],
  ])('rejects %s, and names the option', async (_, args, message) => {
    expect(await cli(['layout', ...args])).toEqual({ code: 2, out: '', err: expect.stringMatching(message) });
  });

  test('names the variable if a value in the environment is wrong', async () => {
    const env = { LAYOUT: 'custom', LAYOUT_FIELDS: 'timestamp:41,worker:5', LAYOUT_EPOCH_MS: '0' };
    for (const args of [
      ['layout', 'custom'],
      ['decode', '1'],
      ['range', '--from', '1h', '--to', 'now'],
    ]) {
      expect(await cli(args, env)).toMatchObject({
        code: 2,
        err: expect.stringContaining('LAYOUT_FIELDS has 0 sequence'),
      });
    }
  });
});

test('every command that reads IDs accepts a custom layout, and the layout of the environment', async () => {
  const { DATACENTER_ID: _, ...env } = LAYOUT_ENVS.regional;
  const options = ['--fields', env.LAYOUT_FIELDS, '--epoch-ms', env.LAYOUT_EPOCH_MS];
  const id = String((5n << 21n) | (7n << 12n) | (2n << 10n) | 1_000n);
  for (const args of [
    ['decode', id],
    ['range', '--from', '2h', '--to', '1h'],
  ]) {
    const byOptions = await cli([...args, '--json', ...options]);
    expect(byOptions.code).toBe(0);
    expect(await cli([...args, '--json'], env)).toEqual(byOptions);
  }
  expect(JSON.parse((await cli(['decode', '--json', id], env)).out).ids[0].breakdown).toEqual({
    timestamp_ms: 1_767_225_600_005,
    datacenter_id: 2,
    worker_id: 1_000,
    sequence_number: 7,
  });
});

describe('the page about the end of a layout', () => {
  const page = readPage('docs/operations/end-of-layout.md');

  test('has the day on which each preset ends', async () => {
    const rows = [...page.matchAll(/^\| (`[^|]+) \| (\d{4}-\d{2}-\d{2}) \|/gm)];
    const told = rows.flatMap(([, names = '', day]) =>
      [...names.matchAll(/`([\w-]+)`/g)].map(([, name]) => [name, day]),
    );
    const { layouts } = (await figures([])) as { layouts: { layout: string; ends_ms: number | null }[] };
    const ends = layouts.flatMap(({ layout, ends_ms: ms }) =>
      ms === null ? [] : [[layout, new Date(ms).toISOString().slice(0, 10)]],
    );
    expect(told.toSorted()).toEqual(ends.toSorted());
  });

  test('names a layout that goes on above js-safe, and gives each of its IDs the same meaning', async () => {
    const [, options = ''] = /^ +idalloc layout (--fields .*)$/m.exec(page) ?? [];
    const { ends_ms: end } = await figures(options.split(' '));
    expect(end).toBeGreaterThan((await figures(['js-safe'])).ends_ms);
    const span = async (args: readonly string[]) =>
      (await cli(['range', '--from', '2030-01-01', '--to', '2030-01-02', ...args])).out;
    expect(await span(options.split(' '))).toBe(await span(['--layout', 'js-safe']));
  });
});
