import { diag, trace } from '@opentelemetry/api';
import { NodeSDK } from '@opentelemetry/sdk-node';
import { SimpleSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace';
import { afterEach, describe, expect, it } from 'vitest';
import { createLogger } from '../../src/log.ts';
import { UNTRACED } from '../../src/pipeline/trace.ts';
import { RUNTIME } from '../../src/runtime.ts';
import { openTraces, type SdkModule } from '../../src/tracing/traces.ts';
import { MemorySpans } from '../support/memory-spans.ts';

const EXPORTING = { OTEL_TRACES_EXPORTER: 'otlp' };

afterEach(() => {
  trace.disable();
  diag.disable();
});

/** What a test passes to openTraces, and the lines that are logged. */
function options(env: Readonly<Record<string, string>>) {
  const lines: { readonly level: string; readonly msg: string; readonly error?: string }[] = [];
  const log = createLogger({ level: 'info', destination: { write: (text) => void lines.push(JSON.parse(text)) } });
  const topics = { requests: 'id.requests', ledger: 'id.ledger' };
  return { lines, all: { env, version: '1.2.3', topics, groupId: 'workers', runtime: RUNTIME, log } };
}

/** The real SDK with an exporter of the test, and what it was told. */
function sdkWith(exporter: Partial<SpanExporter> = {}) {
  const told: object[] = [];
  const spanProcessors = [
    new SimpleSpanProcessor({
      exporter: { export: (_spans, done) => done({ code: 0 }), shutdown: async () => {}, ...exporter },
    }),
  ];
  const NodeSdk: SdkModule['NodeSDK'] = class extends NodeSDK {
    constructor(configuration: object) {
      told.push(configuration);
      super({ ...configuration, autoDetectResources: false, spanProcessors });
    }
  };
  return { told, load: async () => ({ NodeSDK: NodeSdk }) };
}

describe('a worker', () => {
  it.each([
    [{}],
    [{ OTEL_TRACES_EXPORTER: '' }],
    [{ OTEL_TRACES_EXPORTER: 'none', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }],
    [{ ...EXPORTING, OTEL_SDK_DISABLED: 'true' }],
    [{ OTEL_SERVICE_NAME: 'ids', OTEL_METRICS_EXPORTER: 'otlp' }],
  ])('loads no SDK and traces nothing with %o', async (env) => {
    const load = () => Promise.reject(new Error('loaded'));
    expect(await openTraces(options(env).all, load)).toBeUndefined();
  });

  it.each([
    [EXPORTING],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }],
    [{ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://collector:4318/v1/traces' }],
  ])('starts the SDK with %o, for traces alone', async (env) => {
    const { told, load } = sdkWith();
    const { all, lines } = options(env);
    const traces = await openTraces(all, load);
    expect(traces?.tracing).not.toBe(UNTRACED);
    expect(told).toEqual([{ serviceName: 'idalloc', metricReaders: [], logRecordProcessors: [] }]);
    expect(lines.map(({ msg }) => msg)).toEqual(['requests are traced']);
    await traces?.end(1_000);
  });

  it.each([[{ OTEL_SERVICE_NAME: 'ids' }], [{ OTEL_RESOURCE_ATTRIBUTES: 'a=b,service.name=ids' }]])(
    'keeps the name that %o gives it',
    async (env) => {
      const { told, load } = sdkWith();
      await openTraces(options({ ...EXPORTING, ...env }).all, load);
      expect(told).toEqual([{ metricReaders: [], logRecordProcessors: [] }]);
    },
  );

  it('does not start without the SDK that its variables ask for, and says how to get it', async () => {
    const missing = Object.assign(new Error('Cannot find package'), { code: 'ERR_MODULE_NOT_FOUND' });
    const opened = openTraces(options(EXPORTING).all, () => Promise.reject(missing));
    const remedy =
      /is not installed: npm install @opentelemetry\/sdk-node@0.301 beside idalloc, build the image with TRACES=1, or set OTEL_SDK_DISABLED=true$/;
    await expect(opened).rejects.toMatchObject({ code: 'CONFIG_INVALID', message: expect.stringMatching(remedy) });
  });

  it('does not start with an SDK that registers nothing with its API, such as one of another version', async () => {
    const NodeSdk: SdkModule['NodeSDK'] = class {
      start(): void {}
      async shutdown(): Promise<void> {}
    };
    const opened = openTraces(options(EXPORTING).all, async () => ({ NodeSDK: NodeSdk }));
    await expect(opened).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  });

  it('does not start with variables that the SDK rejects', async () => {
    const NodeSdk: SdkModule['NodeSDK'] = class {
      start(): void {
        throw new Error('no such exporter');
      }
      async shutdown(): Promise<void> {}
    };
    const opened = openTraces(options(EXPORTING).all, async () => ({ NodeSDK: NodeSdk }));
    await expect(opened).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/OTEL_\* variables: no such exporter$/),
    });
  });

  it('uses the SDK that whoever started it has registered, and flushes it at the end', async () => {
    await using spans = new MemorySpans();
    const load = () => Promise.reject(new Error('loaded'));
    const traces = await openTraces(options(EXPORTING).all, load);
    trace.getTracer('test').startSpan('one').end();
    await traces?.end(1_000);
    expect(traces).toBeDefined();
    expect(spans.ended.map(({ name }) => name)).toEqual(['one']);
  });
});

describe('the end', () => {
  it('waits for the last spans, but not beyond its limit, and logs that they are lost', async () => {
    const { load } = sdkWith({ shutdown: () => new Promise(() => undefined) });
    const { all, lines } = options(EXPORTING);
    const traces = await openTraces(all, load);
    await traces?.end(5);
    expect(lines.at(-1)).toMatchObject({ level: 'warn', error: 'the last spans were not exported within 5 ms' });
  });

  it('does not fail if the SDK does', async () => {
    const { load } = sdkWith({ shutdown: () => Promise.reject(new Error('no collector')) });
    const { all, lines } = options(EXPORTING);
    const traces = await openTraces(all, load);
    await traces?.end(1_000);
    expect(lines.at(-1)).toMatchObject({ level: 'warn', error: 'no collector' });
  });
});

it('complaints of the SDK are in the log, each kind once a minute', async () => {
  const { load } = sdkWith();
  const { all, lines } = options(EXPORTING);
  await openTraces(all, load);
  for (let i = 0; i < 5; i += 1) diag.error(`connect ECONNREFUSED 127.0.0.1:431${i}`);
  expect(lines.slice(1)).toEqual([
    expect.objectContaining({
      level: 'warn',
      component: 'traces',
      error: 'connect ECONNREFUSED 127.0.0.1:4310',
      msg: 'OpenTelemetry reports an error; requests are served all the same',
    }),
  ]);
});
