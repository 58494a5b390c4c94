import { trace } from '@opentelemetry/api';
import { AlwaysOffSampler, AlwaysOnSampler, type Sampler } from '@opentelemetry/sdk-trace';
import { afterEach, describe, expect, it } from 'vitest';
import { RUNTIME } from '../../src/runtime.ts';
import { PartSpans, SPANS_PER_SECOND } from '../../src/tracing/part-spans.ts';
import { SCHEMA_URL } from '../../src/tracing/spans.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { record, request } from '../support/memory-records.ts';
import { lineOf, MemorySpans } from '../support/memory-spans.ts';
import { MemoryWorker, type MemoryWorkerOptions } from '../support/memory-worker.ts';

const PARENT = 'b7ad6b7169203331';
/** The traces of requests, by a digit. */
const traceOf = (digit: number | string) => String(digit).repeat(32);
const sampled = (digit: number | string) => ({ traceparent: `00-${traceOf(digit)}-${PARENT}-01` });
const unsampled = (digit: number | string) => ({ traceparent: `00-${traceOf(digit)}-${PARENT}-00` });

/** By how much the clock may have been corrected since the process started. */
const SKEW_MS = 60_000;

let open: MemorySpans | undefined;
afterEach(() => open?.[Symbol.asyncDispose]());

function world(options: Partial<MemoryWorkerOptions> = {}, sampler?: Sampler) {
  const spans = new MemorySpans(sampler);
  open = spans;
  const errors: unknown[] = [];
  const clock = { offsetMs: 0 };
  const tracing = new PartSpans({
    tracer: trace.getTracer('test'),
    runtime: { ...RUNTIME, monotonicMs: () => RUNTIME.monotonicMs() + clock.offsetMs },
    topics: { requests: 'id.requests', ledger: 'id.ledger' },
    groupId: 'workers',
    onError: (error) => errors.push(error),
  });
  const topic = new MemoryLedger(2, () => 1_700_000_000_000);
  const worker = new MemoryWorker({ topic, partitions: 2, tracing, ...options });
  const lines = (digit: number | string) =>
    spans
      .of(traceOf(digit))
      .map((span) => lineOf(span, spans.ended))
      .sort();
  const processed = (digit: number | string) => spans.of(traceOf(digit)).find(({ name }) => name.startsWith('process'));
  return { spans, worker, errors, clock, lines, processed };
}

describe('a request with a sampled traceparent', () => {
  it('has a span for each step in the trace of its requester', async () => {
    const { worker, lines, errors } = world();
    await worker.serve([request(0, 'a', { headers: sampled(1) }), request(1, 'b')]);
    expect(lines(1)).toEqual([
      'CLIENT append id.ledger < decide',
      'CLIENT receive id.requests < process id.requests',
      'CLIENT reply id.replies.orders < process id.requests',
      `CONSUMER process id.requests < ${PARENT}`,
      'INTERNAL decide < process id.requests',
    ]);
    expect(errors).toEqual([]);
  });

  it('says what it is about and how it was answered, as the messaging conventions have it', async () => {
    const { worker, processed, spans } = world();
    await worker.serve([request(7, 'a', { count: 3, headers: sampled(1) })]);
    await worker.serve([request(8, 'a', { count: 3, headers: sampled(2) })]);
    expect(processed(1)?.attributes).toEqual({
      'messaging.system': 'kafka',
      'messaging.operation.name': 'process',
      'messaging.operation.type': 'process',
      'messaging.destination.name': 'id.requests',
      'messaging.destination.partition.id': '0',
      'messaging.consumer.group.name': 'workers',
      'messaging.kafka.offset': 7,
      'messaging.message.conversation_id': 'a',
      'idalloc.count': 3,
      'idalloc.result': 'issued',
    });
    expect(processed(2)?.attributes['idalloc.result']).toBe('replayed');
    expect(spans.of(traceOf(2)).map(({ name }) => name)).not.toContain('append id.ledger');
    expect(SCHEMA_URL).toMatch(/\/1\.44\.0$/);
  });

  it('lasts from the receipt of its records to the last acknowledgement', async () => {
    const { worker, processed, spans } = world();
    const beganMs = Date.now();
    await worker.serve([request(0, 'a', { headers: sampled(1) })]);
    const endedMs = Date.now();
    const micros = ([seconds, nanos]: readonly [number, number]) => seconds * 1e6 + Math.floor(nanos / 1_000);
    const [from, to] = [micros(processed(1)?.startTime ?? [0, 0]), micros(processed(1)?.endTime ?? [0, 0])];
    for (const { startTime, endTime } of spans.of(traceOf(1))) {
      expect(micros(startTime)).toBeGreaterThanOrEqual(from);
      expect(micros(endTime)).toBeLessThanOrEqual(to);
      expect(micros(endTime)).toBeGreaterThanOrEqual(micros(startTime));
    }
    // A span's time is counted from a reading of the clock at the start of the process.
    expect(from / 1_000).toBeGreaterThan(beganMs - SKEW_MS);
    expect(to / 1_000).toBeLessThan(endedMs + SKEW_MS);
  });

  it('shows that it was forwarded, and the home partition continues its trace', async () => {
    const { worker, lines, processed } = world({ homeOf: () => 1 });
    await worker.serve([request(0, 'a', { headers: sampled(1) })], 0);
    expect(lines(1)).toEqual([
      'CLIENT forward id.requests < process id.requests',
      'CLIENT receive id.requests < process id.requests',
      `CONSUMER process id.requests < ${PARENT}`,
      'INTERNAL decide < process id.requests',
    ]);
    expect(processed(1)?.attributes['idalloc.result']).toBe('forwarded');
    const [copy] = worker.publisher.on('id.requests');
    await worker.serve([record(0, copy?.value ?? null, copy?.headers)], 1);
    expect(lines(1)).toContain('CLIENT reply id.replies.orders < process id.requests');
    expect(lines(1).filter((line) => line.endsWith(`process id.requests < ${PARENT}`))).toHaveLength(2);
  });

  it('has an error with its code if it is refused or malformed', async () => {
    const { worker, processed } = world();
    await worker.serve([request(0, 'a', { count: 1 })]);
    await worker.serve([
      request(1, 'a', { count: 2, headers: sampled(1) }),
      record(2, Buffer.from('junk'), sampled(2)),
    ]);
    const seen = [processed(1), processed(2)].map((span) => [span?.attributes['error.type'], span?.status.code]);
    expect(seen).toEqual([
      ['CONFLICT', 2],
      ['MALFORMED_REQUEST', 2],
    ]);
    expect(processed(1)?.attributes['idalloc.result']).toBe('refused');
  });

  it('has an error in the step that failed and in its try, and new spans in the next', async () => {
    const { worker, spans } = world();
    worker.publisher.hold = async () => {
      throw new Error('the broker went away');
    };
    await expect(worker.serve([request(0, 'a', { headers: sampled(1) })])).rejects.toThrow('went away');
    const failed = spans.of(traceOf(1)).filter(({ status }) => status.code === 2);
    expect(failed.map(({ name }) => name).sort()).toEqual(['process id.requests', 'reply id.replies.orders']);
    expect(failed[0]?.status.message).toBe('the broker went away');
    worker.publisher.hold = async () => {};
    await worker.serve([request(0, 'a', { headers: sampled(1) })]);
    expect(spans.of(traceOf(1)).filter(({ name }) => name === 'process id.requests')).toHaveLength(2);
  });
});

describe('a part', () => {
  it('has a trace of its own, with links to the requests that are followed, and they to it', async () => {
    const { worker, spans, processed } = world();
    await worker.serve([request(0, 'a', { headers: sampled(1) }), request(1, 'b'), request(2, 'c')]);
    const whole = spans.ended.find((span) => span.parentSpanContext === undefined);
    expect(whole?.attributes).toMatchObject({ 'messaging.batch.message_count': 3, 'idalloc.limited': false });
    expect(whole?.links.map(({ context }) => context.traceId)).toEqual([traceOf(1)]);
    expect(processed(1)?.links.map(({ context }) => context)).toEqual([whole?.spanContext()]);
    const own = spans.of(whole?.spanContext().traceId ?? '').map((span) => lineOf(span, spans.ended));
    expect(own).toEqual([
      'CLIENT receive id.requests < process id.requests',
      'CLIENT append id.ledger < decide',
      'INTERNAL decide < process id.requests',
      'CLIENT reply < process id.requests',
      'CONSUMER process id.requests < root',
    ]);
  });

  it('has spans a limited number of times a second, and so have requests', async () => {
    const { worker, spans, clock } = world();
    const { requests, parts } = SPANS_PER_SECOND;
    const many = (from: number) =>
      Array.from({ length: 150 }, (_, i) => request(from + i, `r${from + i}`, { headers: sampled(1) }));
    const processed = () => spans.ended.filter(({ name }) => name === 'process id.requests');
    const ofRequests = () => processed().filter((span) => span.parentSpanContext !== undefined);
    clock.offsetMs = 0;
    await worker.serve(many(0));
    expect(ofRequests()).toHaveLength(requests);
    expect(processed().at(-1)?.attributes['idalloc.limited']).toBe(true);
    for (let i = 0; i < 3 * parts; i += 1) await worker.serve([request(1_000 + i, `p${i}`)]);
    const before = processed().length - ofRequests().length;
    expect(before).toBeLessThan(2 * parts);
    clock.offsetMs = 1_000;
    await worker.serve(many(2_000));
    expect(ofRequests()).toHaveLength(2 * requests);
    expect(processed().length - ofRequests().length).toBe(before + 1);
  });
});

describe('what is not sampled', () => {
  it('has no spans, and takes nothing from the limit', async () => {
    const { worker, lines, spans } = world();
    const quiet = Array.from({ length: 300 }, (_, i) => request(i, `q${i}`, { headers: unsampled(1) }));
    await worker.serve(quiet);
    await worker.serve([request(300, 'a', { headers: sampled(2) })]);
    expect(lines(1)).toEqual([]);
    expect(lines(2)).toHaveLength(5);
    expect(spans.ended.length).toBeGreaterThan(5);
  });

  it('is followed all the same if the sampler says so', async () => {
    const { worker, lines } = world({}, new AlwaysOnSampler());
    await worker.serve([request(0, 'a', { headers: unsampled(1) })]);
    expect(lines(1)).toHaveLength(5);
  });

  it('is asked about as often as there may be spans', async () => {
    let asked = 0;
    const sampler: Sampler = {
      shouldSample: () => {
        asked += 1;
        return { decision: 0 };
      },
      toString: () => 'counting',
    };
    const { worker, clock } = world({}, sampler);
    const quiet = (from: number) =>
      Array.from({ length: 300 }, (_, i) => request(from + i, `q${from + i}`, { headers: unsampled(1) }));
    await worker.serve(quiet(0));
    expect(asked).toBe(SPANS_PER_SECOND.requests + 1); // and about the part
    clock.offsetMs = 500;
    await worker.serve(quiet(300));
    expect(asked).toBeLessThan(2 * SPANS_PER_SECOND.requests);
  });

  it('is served without a span of the part', async () => {
    const { worker, spans } = world({}, new AlwaysOffSampler());
    await worker.serve([request(0, 'a', { headers: sampled(1) })]);
    expect(spans.ended).toEqual([]);
    expect(worker.replies()).toHaveLength(1);
  });
});

it.each([
  ['empty', ''],
  ['of another form', 'hello'],
  ['with zeros', `00-${'0'.repeat(32)}-${'0'.repeat(16)}-01`],
  ['of bytes that are no text', Buffer.from([0xff, 0x00, 0xfe])],
  ['too long', `00-${traceOf(1)}-${PARENT}-01-${'x'.repeat(900)}`],
  ['sent twice', [sampled(1).traceparent, sampled(2).traceparent]],
])('a traceparent that is %s neither disturbs its request nor has spans', async (_what, traceparent) => {
  const { worker, spans, errors } = world();
  await worker.serve([request(0, 'a', { headers: { traceparent, tracestate: '=,;;=' } })]);
  expect(worker.replies()).toHaveLength(1);
  expect(spans.ended.filter((span) => span.parentSpanContext === undefined)).toHaveLength(1);
  expect(spans.ended).toHaveLength(5);
  expect(errors).toEqual([]);
});

it('an SDK that throws is reported, and does not disturb the requests', async () => {
  const sampler: Sampler = {
    shouldSample: () => {
      throw new Error('a broken sampler');
    },
    toString: () => 'broken',
  };
  const { worker, errors } = world({}, sampler);
  await worker.serve([request(0, 'a', { headers: sampled(1) })]);
  expect(worker.replies()).toHaveLength(1);
  expect(errors).toEqual([new Error('a broken sampler')]);
});
