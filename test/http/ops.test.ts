import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { presetLayout } from '../../src/core/presets.ts';
import { type Ops, startOps } from '../../src/http/ops.ts';
import type { Status } from '../../src/http/status.ts';
import { createMetrics, type Metrics } from '../../src/metrics/metrics.ts';
import { RUNTIME } from '../../src/runtime.ts';

const HOST = '127.0.0.1';
const OPTIONS = {
  host: HOST,
  port: 0,
  complete: () => ({ ready: true }),
  allocating: () => ({ ready: true }),
  status: () => undefined,
  layout: presetLayout('default'),
  runtime: RUNTIME,
};
const open: Ops[] = [];

afterEach(async () => {
  for (const ops of open.splice(0)) await ops[Symbol.asyncDispose]();
});

async function start(
  ready: () => { ready: boolean; reason?: string; detail?: string } = () => ({ ready: true }),
  metrics: Metrics = createMetrics(),
  monotonicMs = RUNTIME.monotonicMs,
): Promise<string> {
  const ops = await startOps({ ...OPTIONS, ready, metrics, runtime: { ...RUNTIME, monotonicMs } });
  open.push(ops);
  return `http://${HOST}:${ops.port}`;
}

async function get(url: string): Promise<{ status: number; body: unknown }> {
  const response = await fetch(url);
  return { status: response.status, body: await response.json() };
}

/** Sends an input; resolves with everything received until the server closes the connection. */
function exchange(url: string, input: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(Number(new URL(url).port), HOST);
    let answer = '';
    socket.on('data', (chunk) => {
      answer += chunk;
    });
    socket.on('error', () => undefined); // a cut connection may come as a reset
    socket.once('close', () => resolve(answer));
    socket.write(input);
  });
}

test.for([
  ['ready', '/readyz'],
  ['complete', '/readyz/copies'],
  ['allocating', '/readyz/api'],
] as const)('whether a worker is %s has a path of its own: %s', async ([what, path]) => {
  const why = { reason: 'STANDBY_RESTORING', detail: 'ledger partition 3: at 5 of 9' };
  const ready = () => ({ ready: true });
  const ops = await startOps({ ...OPTIONS, ready, metrics: createMetrics(), [what]: () => ({ ready: false, ...why }) });
  open.push(ops);
  for (const one of ['/readyz', '/readyz/copies', '/readyz/api']) {
    const found = await get(`http://${HOST}:${ops.port}${one}`);
    if (one === path) expect(found).toEqual({ status: 503, body: { status: 'not ready', ...why } });
    else expect(found).toEqual({ status: 200, body: { status: 'ready' } });
  }
});

test('a port that is taken is named with its address, an IPv6 address in brackets', async () => {
  const taken = Number(new URL(await start()).port);
  const attempt = { ...OPTIONS, port: taken, ready: () => ({ ready: true }), metrics: createMetrics() };
  await expect(startOps(attempt)).rejects.toThrow(`cannot listen on 127.0.0.1:${taken} (`);
  // 2001:db8:: is for documentation: no machine has such an address.
  await expect(startOps({ ...attempt, host: '2001:db8::1' })).rejects.toThrow(
    `cannot listen on [2001:db8::1]:${taken} (`,
  );
});

describe('health', () => {
  test('/healthz answers 200 while the gate is closed', async () => {
    const url = await start(() => ({ ready: false, reason: 'LEASE_LOST' }));
    expect(await get(`${url}/healthz`)).toEqual({ status: 200, body: { status: 'alive' } });
  });

  test('/readyz follows the gate on each call', async () => {
    let state: { ready: boolean; reason?: string; warning?: string; detail?: string } = {
      ready: false,
      reason: 'NO_IDENTITY',
    };
    const url = await start(() => state);
    expect(await get(`${url}/readyz`)).toEqual({ status: 503, body: { status: 'not ready', reason: 'NO_IDENTITY' } });
    const unreadable = { reason: 'LEDGER_UNREADABLE', detail: 'ledger partition 3 stops: …' };
    state = { ready: false, ...unreadable };
    expect(await get(`${url}/readyz`)).toEqual({ status: 503, body: { status: 'not ready', ...unreadable } });
    state = { ready: true };
    expect(await get(`${url}/readyz`)).toEqual({ status: 200, body: { status: 'ready' } });
    const grown = { warning: 'TOPIC_INVALID', detail: 'topic … has 5 partitions' };
    state = { ready: true, ...grown };
    expect(await get(`${url}/readyz`)).toEqual({ status: 200, body: { status: 'ready', ...grown } });
  });

  test('responses forbid caching', async () => {
    const response = await fetch(`${await start()}/readyz`);
    expect(response.headers.get('cache-control')).toBe('no-store');
  });

  test('any other path is 404', async () => {
    expect((await fetch(`${await start()}/api/v1/ids`)).status).toBe(404);
  });
});

describe('the status page', () => {
  test('is one document whose script and style are the only ones that may run, and reach this listener alone', async () => {
    const response = await fetch(await start());
    const html = await response.text();
    const policy = response.headers.get('content-security-policy') ?? '';
    for (const tag of ['style', 'script']) {
      const [, content = '', ...more] = html.split(new RegExp(`</?${tag}>`));
      expect(more).toHaveLength(1);
      expect(policy).toContain(`${tag}-src 'sha256-${createHash('sha256').update(content).digest('base64')}'`);
    }
    expect(policy).toMatch(/default-src 'none';.* connect-src 'self';.* frame-ancestors 'none'/);
    expect(html.replace(/<script>.*<\/script>/s, '')).not.toMatch(/ (src|on\w+|style)=|https?:/);
  });

  test('polls the status, which is 503 until the worker exists', async () => {
    const url = await start();
    expect(await get(`${url}/status`)).toEqual({ status: 503, body: { status: 'not ready', reason: 'STARTING' } });
    const ops = await startOps({
      ...OPTIONS,
      ready: () => ({ ready: true }),
      metrics: createMetrics(),
      status: () => ({ ready: true }) as Status,
    });
    open.push(ops);
    expect(await get(`http://${HOST}:${ops.port}/status`)).toEqual({ status: 200, body: { ready: true } });
  });

  test('renders the status twice a second at most, however many ask', async () => {
    let renderings = 0;
    let nowMs = 5_000;
    const status = () => {
      renderings += 1;
      return { now_ms: renderings } as Status;
    };
    const ready = () => ({ ready: true });
    const ops = await startOps({
      ...OPTIONS,
      runtime: { ...RUNTIME, monotonicMs: () => nowMs },
      ready,
      metrics: createMetrics(),
      status,
    });
    open.push(ops);
    const ask = async () => (await get(`http://${HOST}:${ops.port}/status`)).body;
    await Promise.all(Array.from({ length: 20 }, ask));
    nowMs += 499;
    expect([await ask(), renderings]).toEqual([{ now_ms: 1 }, 1]);
    nowMs += 1;
    expect([await ask(), renderings]).toEqual([{ now_ms: 2 }, 2]);
  });

  test('decodes an ID in any form that needs no key', async () => {
    const url = await start();
    const body = {
      form: 'hex',
      id: '55325805773398016',
      layout: 'default',
      fields: expect.arrayContaining([expect.objectContaining({ label: 'worker', bits: '10010', value: '18' })]),
    };
    expect(await get(`${url}/decode?id=0x00c48e86f8092000`)).toMatchObject({ status: 200, body });
    expect(await get(`${url}/decode?id=00C4-8E86-F809-2000`)).toMatchObject({ status: 400 });
  });

  test.each(['', '?id=', '?id=x&id=y', `?id=${'1'.repeat(201)}`, '?id=<script>', '?id=99999999999999999999'])(
    'refuses /decode%s with a reason',
    async (query) => {
      const { status, body } = await get(`${await start()}/decode${query}`);
      expect([status, body]).toEqual([400, { status: 'refused', detail: expect.stringMatching(/./) }]);
    },
  );
});
describe('metrics', () => {
  test('expose the counters under their Prometheus names', async () => {
    const metrics = createMetrics();
    metrics.addIds(100_000);
    metrics.addRequests('issued');
    metrics.addRequests('replayed', 2);
    metrics.addError('CONFLICT');
    metrics.addReplies(3);
    metrics.addDeadLetters('MALFORMED_REQUEST', 1);
    metrics.setGate('STARTING');
    metrics.setGate('open');
    metrics.setLeaseMargin(14_500);
    metrics.setCeilingMargin(-250);
    metrics.setClockDrift({ lowMs: -3, highMs: 12 });
    metrics.observeBatch(7);
    metrics.setLag(3, 41);
    const url = await start(undefined, metrics);
    const response = await fetch(`${url}/metrics`);
    expect(response.headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
    const lines = new Set((await response.text()).split('\n'));
    for (const line of [
      'idalloc_ids_total 100000',
      'idalloc_requests_total{result="issued"} 1',
      'idalloc_requests_total{result="replayed"} 2',
      'idalloc_requests_total{result="refused"} 0',
      'idalloc_replays_total 2',
      'idalloc_errors_total{code="CONFLICT"} 1',
      'idalloc_replies_total 3',
      'idalloc_dead_letters_total{code="MALFORMED_REQUEST"} 1',
      'idalloc_gate{reason="STARTING"} 0',
      'idalloc_gate{reason="open"} 1',
      'idalloc_lease_margin_seconds 14.5',
      'idalloc_ceiling_margin_seconds -0.25',
      'idalloc_clock_drift_seconds{bound="low"} -0.003',
      'idalloc_clock_drift_seconds{bound="high"} 0.012',
      'idalloc_batch_seconds_bucket{le="0.005"} 0',
      'idalloc_batch_seconds_bucket{le="0.01"} 1',
      'idalloc_consumer_lag_records{partition="3"} 41',
    ]) {
      expect(lines).toContain(line);
    }
  });

  test('are rendered once for all scrapes within a second', async () => {
    let renderings = 0;
    const render = async () => {
      renderings += 1;
      return { contentType: 'text/plain', body: String(renderings) };
    };
    const url = await start(undefined, { ...createMetrics(), render });
    const texts = await Promise.all(Array.from({ length: 20 }, async () => (await fetch(`${url}/metrics`)).text()));
    expect(new Set(texts)).toEqual(new Set(['1']));
    expect(renderings).toBe(1);
  });
});

describe('the listener', () => {
  test.each([
    ['two Host headers', 'GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\nConnection: close\r\n\r\n'],
    ['no Host header', 'GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n'],
    ['a request line without a version', 'GET /healthz\r\n\r\n'],
    ['no HTTP', 'hello\r\n\r\n'],
  ])('answers %s with 400', async (_, input) => {
    expect(await exchange(await start(), input)).toMatch(/^HTTP\/1\.1 400 /);
  });

  test('cuts a connection that sends a flood of requests', async () => {
    const answer = await exchange(await start(), 'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(3_000));
    expect(answer.match(/^HTTP\/1\.1 /gm)?.length ?? 0).toBeLessThanOrEqual(2);
  });

  test('lets an address wait for its turn above fifty requests in a second, and no probe', async () => {
    const waits: number[] = [];
    const sleep = async (ms: number) => void waits.push(ms);
    const runtime = { monotonicMs: () => 5_000, sleep };
    const ready = () => ({ ready: true });
    const ops = await startOps({ ...OPTIONS, runtime, ready, metrics: createMetrics() });
    open.push(ops);
    const statusOf = async (path: string) => (await fetch(`http://${HOST}:${ops.port}${path}`)).status;
    for (let nth = 0; nth < 50; nth += 1) expect(await statusOf('/decode?id=1')).toBe(200);
    expect(waits).toEqual([]);
    const statuses: number[] = [];
    for (const path of ['/decode?id=1', '/status', '/metrics', '/', '/other']) statuses.push(await statusOf(path));
    expect(statuses).toEqual([200, 503, 200, 200, 404]);
    expect(waits).toEqual([20, 40, 60, 80, 100]);
    for (let nth = 5; nth < 100; nth += 1) await statusOf('/decode?id=1');
    expect([await statusOf('/decode?id=1'), await statusOf('/metrics')]).toEqual([429, 429]);
    expect([await statusOf('/healthz'), await statusOf('/readyz')]).toEqual([200, 200]);
    expect(waits).toHaveLength(100);
  });

  test('keeps nothing waiting when it is closed', async () => {
    const slept = Promise.withResolvers<AbortSignal | undefined>();
    const sleep = async (_ms: number, signal?: AbortSignal) => slept.resolve(signal);
    const runtime = { monotonicMs: () => 5_000, sleep };
    const ops = await startOps({ ...OPTIONS, runtime, ready: () => ({ ready: true }), metrics: createMetrics() });
    for (let nth = 0; nth <= 50; nth += 1) await fetch(`http://${HOST}:${ops.port}/decode?id=1`);
    const signal = await slept.promise;
    expect(signal?.aborted).toBe(false);
    await ops[Symbol.asyncDispose]();
    expect(signal?.aborted).toBe(true);
  });

  test('answers no more in a turn of the event loop than its share', async () => {
    let turn = 0;
    let isOver = false;
    const perTurn = new Map<number, number>();
    const next = () => {
      turn += 1;
      if (!isOver) setImmediate(next);
    };
    next();
    const ready = () => {
      perTurn.set(turn, (perTurn.get(turn) ?? 0) + 1);
      return { ready: true };
    };
    let nowMs = 0;
    // Each look at the clock takes two milliseconds, so a turn has time for one request beside those in place.
    const monotonicMs = () => {
      nowMs += 2;
      return nowMs;
    };
    const ops = await startOps({ ...OPTIONS, runtime: { ...RUNTIME, monotonicMs }, ready, metrics: createMetrics() });
    open.push(ops);
    const asked = Array.from({ length: 60 }, () => connect(ops.port, HOST).on('error', () => undefined));
    const askAll = async () => {
      const answers = asked.map((socket) => new Promise((resolve) => socket.once('data', resolve)));
      for (const socket of asked) socket.write('GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n');
      await Promise.all(answers);
    };
    await askAll(); // Node accepts one connection in a turn
    perTurn.clear();
    await askAll();
    isOver = true;
    for (const socket of asked) socket.destroy();
    expect([...perTurn.values()].reduce((sum, count) => sum + count, 0)).toBe(60);
    expect(Math.max(...perTurn.values())).toBeLessThanOrEqual(9);
  });

  test('cuts the longest response for a new connection when all are being answered', async () => {
    const held = Promise.withResolvers<{ contentType: string; body: string }>();
    let nowMs = 0;
    // Time passes between two requests, so that the address is not refused.
    const clock = () => {
      nowMs += 1_000;
      return nowMs;
    };
    const url = new URL(await start(undefined, { ...createMetrics(), render: () => held.promise }, clock));
    const input = ['/healthz', '/metrics'].map((path) => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`).join('');
    const asked = Array.from({ length: 64 }, () => connect(Number(url.port), HOST).on('error', () => undefined));
    for (const socket of asked) socket.write(input);
    // The response to the first request shows that the second was read.
    await Promise.all(asked.map((socket) => new Promise((resolve) => socket.once('data', resolve))));
    const cut = Promise.race(asked.map((socket) => new Promise((resolve) => socket.once('close', resolve))));
    expect((await fetch(`${url}healthz`)).status).toBe(200);
    await cut;
    expect(asked.filter((socket) => socket.closed)).toHaveLength(1);
    for (const socket of asked) socket.destroy();
    held.resolve({ contentType: 'text/plain', body: '' });
  });

  test('cuts the slowest connection for a new one', async () => {
    const url = new URL(await start());
    const idle = Array.from({ length: 100 }, () => connect(Number(url.port), HOST).on('error', () => undefined));
    await Promise.all(idle.map((socket) => new Promise((resolve) => socket.once('connect', resolve))));
    for (let turn = 0; turn < 10; turn += 1) expect((await fetch(`${url}healthz`)).status).toBe(200);
    for (const socket of idle) socket.destroy();
  });

  test('ends even while a client keeps its connection open', async () => {
    const url = new URL(await start());
    const socket = connect(Number(url.port), HOST);
    await new Promise((resolve) => socket.once('connect', resolve));
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.on('error', () => 'a cut connection may come as a reset');
    // Half a request: the server would wait for the rest.
    socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\n');
    const [ops] = open.splice(0);
    await ops?.[Symbol.asyncDispose]();
    await closed;
    await expect(fetch(url)).rejects.toThrow();
  });

  test('a port in use is CONFIG_INVALID, with the variable', async () => {
    const other = createServer().listen(0, HOST);
    await new Promise((resolve) => other.once('listening', resolve));
    const address = other.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    try {
      const starting = startOps({
        ...OPTIONS,
        port,
        ready: () => ({ ready: true }),
        metrics: createMetrics(),
      });
      await expect(starting).rejects.toMatchObject({
        code: 'CONFIG_INVALID',
        message: expect.stringContaining('OPS_PORT'),
      });
    } finally {
      other.close();
    }
  });
});
