import { context, propagation, ROOT_CONTEXT, type Span, trace } from '@opentelemetry/api';
import { afterEach, describe, expect, it } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import type { BufferOptions } from '../../src/client/options.ts';
import { requestSpans } from '../../src/client/spans.ts';
import { MemorySpans } from '../support/memory-spans.ts';
import { FakeRuntime, FakeWorkers, turns } from './stage.ts';

const open: AsyncDisposable[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one[Symbol.asyncDispose]();
});

async function stage(options: BufferOptions = { prefetch: false }, spans: MemorySpans | null = new MemorySpans()) {
  const [runtime, workers] = [new FakeRuntime(), new FakeWorkers()];
  const follow = await requestSpans();
  const client = await IdClient.over({ runtime, replyTopic: 'id.replies.test', link: workers.link, follow }, options);
  open.push(client);
  if (spans !== null) open.push(spans);
  await turns();
  return { client, runtime, workers, ended: () => spans?.ended ?? [] };
}

/** Does the work in a span of the service, and returns it. */
async function within(work: () => Promise<unknown>): Promise<Span> {
  const span = trace.getTracer('service').startSpan('order', {}, ROOT_CONTEXT);
  await context.with(trace.setSpan(ROOT_CONTEXT, span), work).catch(() => undefined);
  return span;
}

describe('a request of a service with traces', () => {
  it('has a span below that of its caller, and carries its context to the workers', async () => {
    const { client, workers, ended } = await stage();
    const caller = await within(() => client.request({ count: 5, correlationId: 'order-1' }));
    const [span] = ended();
    const { traceId, spanId } = span?.spanContext() ?? {};
    expect(span?.name).toBe('request id.requests');
    expect(span?.parentSpanContext?.spanId).toBe(caller.spanContext().spanId);
    expect(span?.attributes).toEqual({
      'messaging.system': 'kafka',
      'messaging.operation.name': 'request',
      'messaging.operation.type': 'send',
      'messaging.destination.name': 'id.requests',
      'messaging.message.conversation_id': 'order-1',
      'idalloc.count': 5,
      'idalloc.ahead': false,
      'idalloc.result': 'issued',
    });
    expect(workers.sent.map(({ headers }) => headers)).toEqual([{ traceparent: `00-${traceId}-${spanId}-01` }]);
  });

  it('keeps the baggage of its service to itself', async () => {
    const { client, workers } = await stage();
    const own = propagation.setBaggage(ROOT_CONTEXT, propagation.createBaggage({ user: { value: 'ada' } }));
    await context.with(own, () => client.request({ count: 1 }));
    expect(Object.keys(workers.sent[0]?.headers ?? {})).toEqual(['traceparent']);
  });

  it('sends the same context with each copy, and ends with the error that its caller gets', async () => {
    const { client, runtime, workers, ended } = await stage();
    workers.answering = false;
    const asked = within(() => client.request({ count: 1, timeoutMs: 5_000 }));
    await runtime.pass(4_000);
    expect(ended()).toEqual([]);
    await runtime.pass(1_000);
    await asked;
    const [first, second] = workers.sent.map(({ headers }) => headers?.traceparent);
    expect(second).toBe(first);
    expect(ended()[0]?.attributes['error.type']).toBe('NO_REPLY');
    expect(ended()[0]?.status).toMatchObject({ code: 2, message: expect.stringMatching(/^NO_REPLY: /) });
  });

  it('has the code of a refusal', async () => {
    const { client, workers, ended } = await stage();
    workers.answering = false;
    const asked = within(() => client.request({ count: 1, correlationId: 'a' }));
    await turns();
    workers.refuse('a', 'CONFLICT');
    await asked;
    expect(ended()[0]?.attributes['error.type']).toBe('CONFLICT');
  });

  it('for numbers names the sequence', async () => {
    const { client, runtime, workers, ended } = await stage();
    workers.answering = false;
    const asked = within(() => client.sequence('invoices').take(1, { correlationId: 'a', timeoutMs: 1_000 }));
    await runtime.pass(1_000);
    await asked;
    expect(ended()[0]?.attributes).toMatchObject({ 'idalloc.sequence': 'invoices', 'error.type': 'NO_REPLY' });
  });

  it('for the buffer has a trace of its own, whoever took the IDs', async () => {
    const { client, ended } = await stage({ idsPerSecond: 10 });
    const before = ended().length;
    expect(before).toBeGreaterThan(0);
    await within(async () => {
      client.take(client.buffered - 1);
      await turns();
    });
    const refills = ended();
    expect(refills.length).toBeGreaterThan(before);
    for (const span of refills) {
      expect(span.parentSpanContext).toBeUndefined();
      expect(span.attributes['idalloc.ahead']).toBe(true);
    }
  });
});

describe('a client without traces', () => {
  it('sends no headers while no SDK is registered, and follows requests once one is', async () => {
    const { client, workers } = await stage({ prefetch: false }, null);
    await client.request({ count: 1 });
    await using spans = new MemorySpans();
    await client.request({ count: 1 });
    expect(workers.sent.map(({ headers }) => headers === undefined)).toEqual([true, false]);
    expect(spans.ended).toHaveLength(1);
  });

  it('works without the API', async () => {
    const missing = () => Promise.reject(new Error('Cannot find package'));
    expect(await requestSpans('id.requests', missing)).toBeUndefined();
  });

  it('works with an SDK that throws', async () => {
    const broken = {
      shouldSample: () => {
        throw new Error('a broken sampler');
      },
      toString: () => 'broken',
    };
    const { client, ended } = await stage({ prefetch: false }, new MemorySpans(broken));
    expect((await client.request({ count: 1 })).replayed).toBe(false);
    expect(ended()).toEqual([]);
  });
});
