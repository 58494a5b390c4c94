import * as api from '@opentelemetry/api';
import type { Runtime } from '../async/runtime.ts';
import { atMost } from '../async/waiting.ts';
import { describeError } from '../errors.ts';
import { type Log, withoutRepeats } from '../log.ts';
import type { Tracing } from '../pipeline/trace.ts';
import { SCHEMA_URL } from './attributes.ts';
import type { StepTopics } from './one-part.ts';
import { PartSpans } from './part-spans.ts';
import { hasProvider } from './provider.ts';
import { loadSdk, type OtelVariables, startSdk, wantsSdk } from './sdk.ts';

export interface TracesOptions {
  readonly env: OtelVariables;
  /** Of this package. */
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
