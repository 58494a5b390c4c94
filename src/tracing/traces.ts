import * as api from '@opentelemetry/api';
import type { Runtime } from '../async/runtime.ts';
import { atMost } from '../async/waiting.ts';
import { describeError, IdallocError } from '../errors.ts';
import { type Log, withoutRepeats } from '../log.ts';
import type { Tracing } from '../pipeline/trace.ts';
import { PartSpans, type StepTopics } from './part-spans.ts';
import { hasProvider, SCHEMA_URL } from './spans.ts';

export interface TracesOptions {
  readonly env: OtelVariables;
  /** The version of this package. */
  readonly version: string;
  readonly topics: StepTopics;
  readonly groupId: string;
  readonly runtime: Runtime;
  readonly log: Log;
}

/** The traces of a worker that has somewhere to send them. */
export interface Traces {
  readonly tracing: Tracing;
  /** Sends the last spans, in this time at most. Never rejects. */
  end(limitMs: number): Promise<void>;
}

/** While a collector is away, the SDK complains about each export. */
const SAME_LINE_MS = 60_000;
/** A complaint has a stack. */
const MAX_COMPLAINT = 300;

/**
 * Uses the SDK that whoever started the process has registered, or else starts the one that the variables ask for.
 * Undefined if there is neither: that is decided once, and nothing is traced.
 *
 * @throws IdallocError CONFIG_INVALID as `startSdk` does.
 */
export async function openTraces(options: TracesOptions, load = loadSdk): Promise<Traces | undefined> {
  const { env, version, runtime, log } = options;
  const complain = complaints(runtime, log);
  let flush = flushRegistered;
  if (!hasProvider(api)) {
    if (!wantsSdk(env)) return undefined;
    flush = await startSdk(env, load);
    const logger = { error: complain, warn: complain, info: ignore, debug: ignore, verbose: ignore };
    api.diag.setLogger(logger, { logLevel: api.DiagLogLevel.WARN, suppressOverrideMessage: true });
  }
  const tracer = api.trace.getTracerProvider().getTracer('idalloc', version, { schemaUrl: SCHEMA_URL });
  const tracing = new PartSpans({ ...options, tracer, onError: (error) => complain(describeError(error)) });
  log.info('requests are traced');
  return {
    tracing,
    async end(limitMs) {
      try {
        const end = await atMost(runtime, limitMs, () => flush().then(() => 'flushed'));
        if (end === undefined) complain(`the last spans were not exported within ${limitMs} ms`);
      } catch (error) {
        complain(describeError(error));
      }
    },
  };
}

/** Its owner may not notice that the process ends, since a worker exits by itself. */
async function flushRegistered(): Promise<void> {
  const provider: object = api.trace.getTracerProvider();
  const proxied = (provider as { getDelegate?: () => object }).getDelegate?.();
  const registered = (proxied ?? provider) as { forceFlush?: () => Promise<void> };
  await registered.forceFlush?.();
}

function complaints(runtime: Runtime, log: Log): (text: string) => void {
  const lines = withoutRepeats(log.child({ component: 'traces' }), runtime);
  return (text) => {
    const error = text.slice(0, MAX_COMPLAINT);
    // The texts of the SDK name nothing of ours, and the numbers in them are times and ports.
    const repetition = { about: error.replaceAll(/\d+/g, '#'), everyMs: SAME_LINE_MS };
    lines('warn', { error }, 'OpenTelemetry reports an error; requests are served all the same', repetition);
  };
}

function ignore(): void {}

/** The variables of the process. */
type OtelVariables = Readonly<Record<string, string | undefined>>;

/** The parts of the SDK that are used here. It is the operator's: see `PACKAGE`. */
export interface SdkModule {
  readonly NodeSDK: new (configuration: {
    readonly serviceName?: string;
    readonly metricReaders: never[];
    readonly logRecordProcessors: never[];
  }) => { start(): void; shutdown(): Promise<void> };
}

/** It brings 50 packages that only traces need. A variable, so that bundlers leave the import alone. */
const PACKAGE = '@opentelemetry/sdk-node';
/** It has to be made for the same version of the API as this worker. */
const INSTALL = `npm install ${PACKAGE}@0.301`;
const loadSdk = async (): Promise<SdkModule> => await import(PACKAGE);

/** Whether the variables ask for traces: with an exporter, or an address to export to. */
function wantsSdk(env: OtelVariables): boolean {
  if (env.OTEL_SDK_DISABLED?.trim().toLowerCase() === 'true') return false;
  const exporters = env.OTEL_TRACES_EXPORTER?.split(',').map((name) => name.trim()) ?? [];
  if (exporters.includes('none')) return false;
  const places = [env.OTEL_EXPORTER_OTLP_ENDPOINT, env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT];
  return [...exporters, ...places].some((value) => value !== undefined && value !== '');
}

/**
 * Starts the SDK as the variables say. Returns what flushes and ends it.
 *
 * @throws IdallocError CONFIG_INVALID if it is not installed, can't be started, or has no exporter.
 */
async function startSdk(env: OtelVariables, load: () => Promise<SdkModule>): Promise<() => Promise<void>> {
  const wanted = 'OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT asks for traces';
  const { NodeSDK } = await load().catch((error: unknown) => {
    const isMissing = (error as { code?: unknown }).code === 'ERR_MODULE_NOT_FOUND';
    const cause = isMissing ? 'is not installed' : `can't be loaded (${describeError(error)})`;
    const message = `${wanted}, but ${PACKAGE} ${cause}: ${INSTALL} beside idalloc, build the image with TRACES=1, or set OTEL_SDK_DISABLED=true`;
    throw new IdallocError('CONFIG_INVALID', message, { cause: error });
  });
  const isNamed = Boolean(env.OTEL_SERVICE_NAME) || env.OTEL_RESOURCE_ATTRIBUTES?.includes('service.name=') === true;
  // Metrics are for Prometheus, and logs go to stdout.
  const only = { metricReaders: [], logRecordProcessors: [] };
  try {
    const sdk = new NodeSDK(isNamed ? only : { serviceName: 'idalloc', ...only });
    sdk.start();
    if (hasProvider(api)) return () => sdk.shutdown();
  } catch (error) {
    const message = `${PACKAGE} can't be started with the OTEL_* variables: ${describeError(error)}`;
    throw new IdallocError('CONFIG_INVALID', message, { cause: error });
  }
  const message = `${wanted}, but ${PACKAGE} exports none: check OTEL_TRACES_EXPORTER, or use the version of ${INSTALL}`;
  throw new IdallocError('CONFIG_INVALID', message);
}
