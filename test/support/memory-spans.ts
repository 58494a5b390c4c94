import { context, propagation, SpanKind, trace } from '@opentelemetry/api';
import { NodeSDK } from '@opentelemetry/sdk-node';
import {
  AlwaysOnSampler,
  InMemorySpanExporter,
  ParentBasedSampler,
  type ReadableSpan,
  type Sampler,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace';

/** An SDK that keeps its spans in memory; registered with the API of this process until it is disposed. */
export class MemorySpans implements AsyncDisposable {
  readonly #exporter = new InMemorySpanExporter();
  readonly #sdk: NodeSDK;

  constructor(sampler: Sampler = new ParentBasedSampler({ root: new AlwaysOnSampler() })) {
    const spanProcessors = [new SimpleSpanProcessor({ exporter: this.#exporter })];
    const only = { autoDetectResources: false, metricReaders: [], logRecordProcessors: [] };
    this.#sdk = new NodeSDK({ ...only, spanProcessors, sampler });
    this.#sdk.start();
  }

  /** All that have ended. */
  get ended(): readonly ReadableSpan[] {
    return this.#exporter.getFinishedSpans();
  }

  /** Those of one trace. */
  of(traceId: string): readonly ReadableSpan[] {
    return this.ended.filter((span) => span.spanContext().traceId === traceId);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#sdk.shutdown();
    trace.disable();
    context.disable();
    propagation.disable();
  }
}

/** A span as one line: its kind, its name, and the name of its parent among these. */
export function lineOf(span: ReadableSpan, among: readonly ReadableSpan[]): string {
  const parent = among.find((other) => other.spanContext().spanId === span.parentSpanContext?.spanId);
  return `${SpanKind[span.kind]} ${span.name} < ${parent?.name ?? span.parentSpanContext?.spanId ?? 'root'}`;
}
