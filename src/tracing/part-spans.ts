import { type Context, propagation, ROOT_CONTEXT, SpanKind, type Tracer, trace } from '@opentelemetry/api';
import type { Runtime } from '../async/runtime.ts';
import { type Moment, TokenBucket } from '../async/token-bucket.ts';
import { readTrace, type Trace } from '../codec/request-headers.ts';
import type { Intake } from '../pipeline/intake.ts';
import { type PartTrace, type TracePart, type Tracing, UNTRACED } from '../pipeline/trace.ts';
import { attempt } from './attempt.ts';
import { messaging, requestAttributes } from './attributes.ts';
import { OnePart, type StepTopics, type Traced } from './one-part.ts';

/**
 * How many requests, and how many parts, have spans in a second. Whoever sends a `traceparent` causes spans and pays
 * nothing for them, while each request has about five: CPU here, storage where they go. These are enough to see what
 * happens, and fit into the queue of an SDK with its defaults.
 */
export const SPANS_PER_SECOND = { requests: 100, parts: 20 } as const;

export interface PartSpansOptions {
  readonly tracer: Tracer;
  readonly runtime: Pick<Runtime, 'monotonicMs' | 'wallMs'>;
  readonly topics: StepTopics;
  readonly groupId: string;
  /** The SDK threw; the work goes on without the span. */
  readonly onError: (error: unknown) => void;
}

/** Where a part comes from. */
interface Received {
  readonly partition: number;
  /**
   * Epoch milliseconds with fractions, by which all spans of a part agree: an SDK would round each to milliseconds
   * first.
   */
  readonly nowMs: () => number;
  readonly atMs: number;
}

/**
 * Makes spans of parts. Each part has a trace of its own, with a span for each step. A request with a `traceparent` has
 * the same steps in the trace of its requester, if the SDK samples it. Both link to each other.
 */
export class PartSpans implements Tracing {
  readonly #options: PartSpansOptions;
  readonly #requests = new TokenBucket(SPANS_PER_SECOND.requests);
  readonly #unsampled = new TokenBucket(SPANS_PER_SECOND.requests);
  readonly #parts = new TokenBucket(SPANS_PER_SECOND.parts);

  constructor(options: PartSpansOptions) {
    this.#options = options;
  }

  received(partition: number): TracePart {
    const { runtime } = this.#options;
    const epochMs = runtime.wallMs() - runtime.monotonicMs();
    const nowMs = () => epochMs + runtime.monotonicMs();
    const from = { partition, nowMs, atMs: nowMs() };
    return (part, work) => this.#follow(from, part, work);
  }

  async #follow(from: Received, part: readonly Intake[], work: (trace: PartTrace) => Promise<void>): Promise<void> {
    const one = attempt(this.#options.onError, () => this.#begin(from, part));
    if (one === undefined) return UNTRACED.received(from.partition)(part, work);
    try {
      await work(one);
      one.end();
    } catch (error) {
      one.end(error);
      throw error;
    }
  }

  /** Undefined if nothing of the part is recorded. */
  #begin(from: Received, part: readonly Intake[]): OnePart | undefined {
    const { requests, isLimited } = this.#beginRequests(from, part);
    const whole = this.#beginWhole(from, part.length, [...requests.values()], isLimited);
    if (whole === undefined && requests.size === 0) return undefined;
    return new OnePart({ ...this.#options, ...from, size: part.length, whole, requests });
  }

  #beginRequests(from: Received, part: readonly Intake[]) {
    const requests = new Map<number, Traced>();
    const at = { nowMs: this.#options.runtime.monotonicMs(), share: 1 };
    for (const intake of part) {
      const headers = traceOf(intake);
      if (headers.traceparent === undefined) continue;
      if (this.#requests.waitMs(1, at) > 0) return { requests, isLimited: true };
      if (!isSampled(headers.traceparent) && !this.#mayAsk(at)) continue;
      const parent = parentOf(headers, headers.traceparent);
      const followed = parent === undefined ? undefined : this.#beginRequest(from, intake, parent);
      if (followed === undefined) continue;
      this.#requests.take(1);
      requests.set(intake.record.offset, followed);
    }
    return { requests, isLimited: false };
  }

  /**
   * Whether the SDK is asked about a request that is not sampled. The usual samplers refuse each, and asking is most of
   * the cost.
   */
  #mayAsk(at: Moment): boolean {
    if (this.#unsampled.waitMs(1, at) > 0) return false;
    this.#unsampled.take(1);
    return true;
  }

  #beginRequest(from: Received, intake: Intake, parent: Context): Traced | undefined {
    const { name, attributes } = this.#process(from);
    const about = intake.kind === 'accepted' ? intake.request : intake.address;
    const own = { ...attributes, 'messaging.kafka.offset': intake.record.offset, ...requestAttributes(about) };
    const span = this.#options.tracer.startSpan(
      name,
      { kind: SpanKind.CONSUMER, startTime: from.atMs, attributes: own },
      parent,
    );
    if (!span.isRecording()) return undefined;
    return { span, context: trace.setSpan(parent, span), replyTopic: about.replyTopic, requester: parent };
  }

  #beginWhole(from: Received, size: number, requests: readonly Traced[], isLimited: boolean): Traced | undefined {
    const at = { nowMs: this.#options.runtime.monotonicMs(), share: 1 };
    if (this.#parts.waitMs(1, at) > 0) return undefined;
    const { name, attributes } = this.#process(from);
    const own = { ...attributes, 'messaging.batch.message_count': size, 'idalloc.limited': isLimited };
    const links = requests.flatMap(({ requester }) => linkTo(requester));
    const span = this.#options.tracer.startSpan(
      name,
      { kind: SpanKind.CONSUMER, startTime: from.atMs, attributes: own, links },
      ROOT_CONTEXT,
    );
    if (!span.isRecording()) return undefined;
    this.#parts.take(1);
    for (const request of requests) request.span.addLink({ context: span.spanContext() });
    return { span, context: trace.setSpan(ROOT_CONTEXT, span) };
  }

  #process({ partition }: Received) {
    const { topics, groupId } = this.#options;
    const operation = { name: 'process', type: 'process', destination: topics.requests, partition } as const;
    const { name, attributes } = messaging(operation);
    return { name, attributes: { ...attributes, 'messaging.consumer.group.name': groupId } };
  }
}

function traceOf(intake: Intake): Trace {
  return intake.kind === 'accepted' ? intake.request.trace : readTrace(intake.record.headers);
}

/** Where a `traceparent` has its flags, as two hexadecimal digits: the last bit says that it is sampled. */
const FLAGS_AT = 53;

function isSampled(traceparent: Buffer): boolean {
  return (Number.parseInt(traceparent.toString('latin1', FLAGS_AT, FLAGS_AT + 2), 16) & 1) === 1;
}

/** The context that the headers name; undefined for anything that is not a valid `traceparent`. */
function parentOf({ tracestate }: Trace, traceparent: Buffer): Context | undefined {
  const carrier: Record<string, string> = { traceparent: traceparent.toString('latin1') };
  if (tracestate !== undefined) carrier.tracestate = tracestate.toString('latin1');
  const context = propagation.extract(ROOT_CONTEXT, carrier);
  return trace.getSpanContext(context) === undefined ? undefined : context;
}

function linkTo(context: Context | undefined) {
  const found = context === undefined ? undefined : trace.getSpanContext(context);
  return found === undefined ? [] : [{ context: found }];
}
