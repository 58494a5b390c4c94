import { runInNewContext } from 'node:vm';
import { beforeEach, describe, expect, test } from 'vitest';
import type { DecodedStatus, Status } from '../../src/http/status.ts';
import { STATUS_PAGE } from '../../src/http/status-page.ts';

const NOW_MS = Date.UTC(2026, 10, 29, 5, 0, 0);
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const YEAR_MS = 31_556_952_000;

const STATUS: Status = {
  now_ms: NOW_MS,
  started_ms: NOW_MS - MINUTE_MS,
  ready: true,
  reason: null,
  detail: null,
  remedy: null,
  warning: null,
  identity: { datacenter_id: 4, worker_id: 7, fence: '41', lease_margin_ms: 14_000, ceiling_ahead_ms: -150 },
  gate: [
    { at_ms: NOW_MS - 2 * HOUR_MS, reason: null },
    { at_ms: NOW_MS - 30 * MINUTE_MS, reason: 'LEASE_LOST' },
    { at_ms: NOW_MS - 15 * MINUTE_MS, reason: null },
  ],
  drift: [{ broker: 'b1:9092', low_ms: -20.4, high_ms: 1_240 }],
  kafka: { silent_ms: 20, unreached: [] },
  partitions: [
    {
      ...{ partition: 0, owned: true, copy: 'serving', copy_lag: 3, remembers_since_ms: 0 },
      ...{ oldest_request_ms: 1_500, large_requests: 2 },
    },
    {
      ...{ partition: 1, owned: false, copy: 'restoring', copy_lag: 20, remembers_since_ms: null },
      ...{ oldest_request_ms: 0, large_requests: 0 },
    },
    {
      ...{ partition: 2, owned: false, copy: 'following', copy_lag: 0, remembers_since_ms: NOW_MS - HOUR_MS },
      ...{ oldest_request_ms: 0, large_requests: 0 },
    },
  ],
  totals: { ids: 1_000, numbers: 50, requests: 10 },
  layout: { name: 'default', epoch_ms: 0, ends_ms: NOW_MS + 2.5 * YEAR_MS },
  quotas: [{ prefix: 'id.replies.acme.', limits: '1000 IDs/s', used: 0.256 }],
  worker_ids: {
    as_of_ms: NOW_MS - 1_000,
    ids: [
      { worker_id: 7, holder: '192.0.2.1', fence: '41', ceiling_ahead_ms: 25_000 },
      { worker_id: 8, holder: null, fence: null, ceiling_ahead_ms: null },
    ],
  },
  worker_ids_error: null,
  group: {
    as_of_ms: NOW_MS - 2_000,
    members: [{ name: 'one', host: '192.0.2.1', owned: [0, 1, 2, 5], standbys: [] }],
  },
  group_error: 'the coordinator is away',
};

/** What the script uses of an element of a browser. */
class FakeElement {
  textContent = '';
  className = '';
  value = '';
  children: FakeElement[] = [];
  readonly attributes: Record<string, string> = {};
  readonly listeners: ((event: { preventDefault(): void }) => void)[] = [];

  append(...children: FakeElement[]): void {
    this.children.push(...children);
  }

  replaceChildren(...children: FakeElement[]): void {
    this.children = children;
  }

  setAttribute(name: string, value: string): void {
    this.attributes[name] = value;
  }

  addEventListener(_event: string, listener: (event: { preventDefault(): void }) => void): void {
    this.listeners.push(listener);
  }
}

/** The page with its script, before a worker that answers as the test says. */
class FakePage {
  readonly elements = new Map(
    [...STATUS_PAGE.matchAll(/ id="([\w-]+)"/g)].map(([, id = '']) => [id, new FakeElement()]),
  );
  /** The paths that were asked for. */
  readonly asked: string[] = [];
  /** Undefined: the worker does not answer. */
  answer: { readonly ok: boolean; readonly body: object } | undefined = { ok: true, body: STATUS };
  readonly #timers: (() => void)[] = [];

  /** Resolves when the first status is drawn. */
  async open(): Promise<void> {
    const [, script = ''] = /<script>(.*)<\/script>/s.exec(STATUS_PAGE) ?? [];
    runInNewContext(script, {
      document: {
        getElementById: (id: string) => this.elements.get(id) ?? null,
        createElement: () => new FakeElement(),
        createElementNS: () => new FakeElement(),
      },
      fetch: async (path: string) => {
        this.asked.push(path);
        const { answer } = this;
        if (answer === undefined) throw new TypeError('fetch failed');
        return { ok: answer.ok, json: async () => answer.body };
      },
      setTimeout: (run: () => void) => this.#timers.push(run),
    });
    await settled();
  }

  /** The next poll. */
  async poll(body: Partial<Status>): Promise<void> {
    this.answer = { ok: true, body: { ...STATUS, ...body } };
    await this.repeat();
  }

  /** Whatever is due runs. */
  async repeat(): Promise<void> {
    for (const run of this.#timers.splice(0)) run();
    await settled();
  }

  async decode(text: string, answer: FakePage['answer']): Promise<void> {
    this.answer = answer;
    this.at('id').value = text;
    for (const submit of this.at('decode').listeners) submit({ preventDefault: () => undefined });
    await settled();
  }

  at(id: string): FakeElement {
    const found = this.elements.get(id);
    if (found === undefined) throw new RangeError(`the page has no ${id}`);
    return found;
  }

  text(...ids: readonly string[]): readonly string[] {
    return ids.map((id) => this.at(id).textContent);
  }

  rows(id: string): readonly (readonly string[])[] {
    return this.at(id).children.map(({ children }) => children.map(({ textContent }) => textContent));
  }
}

const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

let page: FakePage;

beforeEach(async () => {
  page = new FakePage();
  await page.open();
});

describe('the status page', () => {
  test('shows the state and the identity of a worker', () => {
    expect(page.text('state', 'detail', 'meaning', 'remedy')).toEqual(['Ready', '', '', '']);
    expect(page.at('state').className).toBe('open');
    expect(page.text('uptime', 'connection')).toEqual([
      'started 2026-11-29 04:59:00 UTC, 60.0 s ago',
      'updated 2026-11-29 05:00:00 UTC',
    ]);
    expect(page.text('worker', 'datacenter', 'fence', 'lease', 'ceiling', 'layout', 'years', 'kafka')).toEqual([
      ...['7', '4', '41', '14.0 s', '-150 ms', 'default'],
      '2.5 years, until 2029-05-30 07:33:00 UTC',
      'last answer 20 ms ago',
    ]);
  });

  test('has a row for each partition, broker, quota, worker and worker ID', () => {
    expect(page.rows('partitions')).toEqual([
      ['0', 'owner', 'serving', '3', '1.5 s', '2', 'always'],
      ['1', 'standby', 'restoring', '20', '0 ms', '0', '–'],
      ['2', 'standby', 'following', '0', '0 ms', '0', '2026-11-29 04:00:00 UTC'],
    ]);
    expect(page.rows('drift')).toEqual([['b1:9092', '-20 ms', '1.2 s']]);
    expect(page.rows('quotas')).toEqual([['id.replies.acme.', '1000 IDs/s', '26 %']]);
    expect(page.rows('group')).toEqual([['one', '192.0.2.1', '0–2, 5', 'none']]);
    expect(page.rows('workers')).toEqual([
      ['7', '192.0.2.1', '41', '25.0 s'],
      ['8', 'free', '', '–'],
    ]);
    expect(page.text('workers-as-of', 'group-as-of')).toEqual([
      'as of 2026-11-29 04:59:59 UTC ',
      'as of 2026-11-29 04:59:58 UTC the coordinator is away',
    ]);
  });

  test('draws when the gate was open in the last hour, and lists its last changes', () => {
    const bars = page.at('gate').children;
    expect(bars.map(({ attributes: { x, width, class: kind } }) => [x, width, kind])).toEqual([
      ['0', '500', 'open'],
      ['500', '250', 'closed'],
      ['750', '250', 'open'],
    ]);
    expect(bars.map(({ children }) => children[0]?.textContent)).toEqual([
      'open from 2026-11-29 04:00:00',
      'LEASE_LOST from 2026-11-29 04:30:00',
      'open from 2026-11-29 04:45:00',
    ]);
    expect(page.rows('gate-changes')).toEqual([
      ['2026-11-29 04:45:00', 'open'],
      ['2026-11-29 04:30:00', 'LEASE_LOST'],
      ['2026-11-29 03:00:00', 'open'],
    ]);
  });

  test('shows rates from the second status on, and none over a restart', async () => {
    expect(page.text('rate-ids', 'rate-requests', 'rate-numbers')).toEqual(['–', '–', '–']);
    await page.poll({ now_ms: NOW_MS + 2_000, totals: { ids: 1_100, numbers: 0, requests: 16 } });
    expect(page.text('rate-ids', 'rate-requests', 'rate-numbers')).toEqual(['50/s', '3/s', '–']);
  });

  test('says why a worker is not ready, what that means and what to do, and which brokers are silent', async () => {
    const unreached = [2, 0, 1, 5].map((partition) => ({ broker: 'b1:9092', partition, silent_ms: 9_000 }));
    await page.poll({
      ...{ ready: false, reason: 'KAFKA_UNAVAILABLE', detail: 'no broker has answered for 9 s' },
      remedy: { meaning: 'brokers are away', remedy: 'start them' },
      kafka: { silent_ms: 9_000, unreached: [...unreached, { broker: 'b2:9092', partition: 7, silent_ms: 9_000 }] },
      identity: { datacenter_id: 4, worker_id: null, fence: null, lease_margin_ms: null, ceiling_ahead_ms: null },
    });
    expect(page.text('state', 'detail', 'meaning', 'remedy')).toEqual([
      'Not ready: KAFKA_UNAVAILABLE',
      'no broker has answered for 9 s',
      'What it means: brokers are away',
      'What to do: start them',
    ]);
    expect(page.at('state').className).toBe('closed');
    expect(page.text('kafka', 'worker', 'fence', 'lease')).toEqual([
      'no answer from b1:9092 (partitions 0–2, 5), b2:9092 (partitions 7)',
      ...['none', 'none', 'unknown: the clock is wrong'],
    ]);
  });

  test('shows a warning where there is no detail', async () => {
    await page.poll({ warning: 'a topic has more partitions' });
    expect(page.text('detail')).toEqual(['a topic has more partitions']);
  });

  test('says what is not known yet', async () => {
    await page.poll({ partitions: [], drift: [], quotas: [], worker_ids: null, group: null, group_error: null });
    expect(['partitions', 'drift', 'quotas', 'workers', 'group'].map((id) => page.rows(id))).toEqual([
      [['none yet']],
      [['no broker has answered yet']],
      [['no quotas are configured']],
      [['not read yet']],
      [['not read yet']],
    ]);
    expect(page.text('workers-as-of', 'group-as-of')).toEqual(['', '']);
  });

  test.each([
    ['does not answer', undefined],
    ['starts', { ok: false, body: { reason: 'STARTING' } }],
  ])('says that it is old when the worker %s, and asks again', async (_, answer) => {
    page.answer = answer;
    await page.repeat();
    expect(page.text('connection', 'state')).toEqual(['the worker does not answer; what is shown may be old', 'Ready']);
    await page.poll({ now_ms: NOW_MS + 4_000 });
    expect(page.text('connection')).toEqual(['updated 2026-11-29 05:00:04 UTC']);
    expect(page.asked).toEqual(['status', 'status', 'status']);
  });
});

describe('the decoder of the status page', () => {
  const decoded: DecodedStatus = {
    ...{ form: 'decimal', id: '5', hex: '0x5', layout: 'default' },
    fields: [
      { label: 'timestamp', bits: '0', value: '0', time_ms: NOW_MS },
      { label: 'sequence', bits: '101', value: '5' },
    ],
  };

  test('shows the fields of an ID, whatever characters its text has', async () => {
    await page.decode(' 5 &', { ok: true, body: decoded });
    expect(page.asked.at(-1)).toBe('decode?id=5%20%26');
    expect(page.text('decoded')).toEqual(['decimal: 5 = 0x5 (default)']);
    expect(page.rows('bits')).toEqual([
      ['timestamp', '0', '2026-11-29T05:00:00.000Z'],
      ['sequence', '101', '5'],
    ]);
    expect(page.at('bits').children.map(({ className }) => className)).toEqual(['field f0', 'field f1']);
  });

  test.each([
    ['is no ID', { ok: false, body: { detail: 'an ID must be a number' } }, 'an ID must be a number'],
    ['is refused without a reason', { ok: false, body: {} }, 'this is not an ID'],
    ['is not answered', undefined, 'the worker does not answer'],
  ])('says so when a text %s, and shows no fields', async (_, answer, said) => {
    await page.decode('5', { ok: true, body: decoded });
    await page.decode('x', answer);
    expect(page.text('decoded')).toEqual([said]);
    expect(page.rows('bits')).toEqual([]);
  });
});
