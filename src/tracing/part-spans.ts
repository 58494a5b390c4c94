import { type Context, propagation, ROOT_CONTEXT, type Span, SpanKind, type Tracer, trace } from '@opentelemetry/api';
import type { Runtime } from '../async/runtime.ts';
import { type Moment, TokenBucket } from '../async/token-bucket.ts';
import { readTrace, type Trace } from '../codec/request-headers.ts';
import { describeError, type ErrorCode } from '../errors.ts';
import type { Answer } from '../pipeline/decision.ts';
import type { Accepted, Intake } from '../pipeline/intake.ts';
import type { RequestRecord } from '../pipeline/ports.ts';
import { type PartTrace, type TracedStep, type TracePart, type Tracing, UNTRACED } from '../pipeline/trace.ts';
import { type Attributes, attempt, errorType, fail, messaging, requestAttributes } from './spans.ts';

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
    const about = { ...(intake.kind === 'accepted' && intake.request), correlationId: intake.address.correlationId };
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

/** The topics of a worker that its spans name. */
export interface StepTopics {
  readonly requests: string;
  readonly ledger: string;
}

/** A part, or one of its requests, whose steps become spans. */
export interface Traced {
  readonly span: Span;
  /** The context that has the span, for its children. */
  readonly context: Context;
  /** Where the reply to a request goes. */
  readonly replyTopic?: string | undefined;
  /** The context that the headers of a request name. */
  readonly requester?: Context;
}

export interface OnePartOptions {
  readonly tracer: Tracer;
  readonly topics: StepTopics;
  readonly onError: (error: unknown) => void;
  readonly partition: number;
  /** Epoch milliseconds. */
  readonly nowMs: () => number;
  /** When its records were received. */
  readonly atMs: number;
  readonly size: number;
  /** The part, if it is recorded. */
  readonly whole: Traced | undefined;
  /** The requests that are recorded, by their offsets. */
  readonly requests: ReadonlyMap<number, Traced>;
}

/** The spans of one try to answer a part. All times are given, so that spans of one step agree. */
export class OnePart implements PartTrace {
  readonly #options: OnePartOptions;
  /** Spans of the decision in progress, in which appends and swaps happen. */
  readonly #deciding = new Map<Traced, Context>();

  constructor(options: OnePartOptions) {
    this.#options = options;
    const { atMs, nowMs, size, requests, whole } = options;
    const all = [...(whole === undefined ? [] : [whole]), ...requests.values()];
    const received = all.map((followed) => this.#start('receive', followed, size, atMs));
    endAll(received, nowMs());
  }

  async step<T>(step: TracedStep, of: () => readonly RequestRecord[], work: () => Promise<T>): Promise<T> {
    const { onError, nowMs } = this.#options;
    const spans = attempt(onError, () => this.#begin(step, of())) ?? [];
    const end = (error?: unknown) => attempt(onError, () => endAll(spans, nowMs(), error));
    try {
      const result = await work();
      end();
      return result;
    } catch (error) {
      end(error);
      throw error;
    }
  }

  answered(accepted: readonly Accepted[], answers: readonly Answer[]): void {
    if (this.#options.requests.size === 0) return;
    accepted.forEach(({ record }, at) => {
      const decision = answers[at]?.decision;
      if (decision?.kind === 'refused') this.refused(record, decision.code);
      else if (decision?.kind === 'elsewhere') this.#note(record, 'forwarded');
      else this.#note(record, decision?.replayed === true ? 'replayed' : 'issued');
    });
  }

  refused(record: RequestRecord, code: ErrorCode): void {
    const { requests, onError } = this.#options;
    const span = requests.get(record.offset)?.span;
    if (span === undefined) return;
    this.#note(record, 'refused');
    attempt(onError, () => fail(span, code));
  }

  /** Ends what the part and its requests have; with the error if they are tried again. */
  end(error?: unknown): void {
    const { whole, requests, onError, nowMs } = this.#options;
    const spans = [...requests.values(), ...(whole === undefined ? [] : [whole])].map(({ span }) => span);
    attempt(onError, () => endAll(spans, nowMs(), error));
  }

  #note(record: RequestRecord, result: 'issued' | 'replayed' | 'refused' | 'forwarded'): void {
    const { requests, onError } = this.#options;
    attempt(onError, () => requests.get(record.offset)?.span.setAttribute('idalloc.result', result));
  }

  #begin(step: TracedStep, records: readonly RequestRecord[]): Span[] {
    const { whole, requests, nowMs } = this.#options;
    const atMs = nowMs();
    const some = requests.size === 0 ? [] : records.flatMap(({ offset }) => requests.get(offset) ?? []);
    const all = [...(whole === undefined ? [] : [whole]), ...some];
    return all.map((followed) => this.#start(step, followed, records.length, atMs));
  }

  #start(step: TracedStep | 'receive', followed: Traced, records: number, startTime: number): Span {
    const { name, kind, attributes } = this.#describe(step, followed);
    if (followed.requester === undefined) attributes['messaging.batch.message_count'] = records;
    const parent =
      step === 'append' || step === 'swap' ? (this.#deciding.get(followed) ?? followed.context) : followed.context;
    const span = this.#options.tracer.startSpan(name, { kind, attributes, startTime }, parent);
    if (step === 'decide') this.#deciding.set(followed, trace.setSpan(followed.context, span));
    return span;
  }

  #describe(step: TracedStep | 'receive', { replyTopic }: Traced) {
    const { topics, partition } = this.#options;
    const type = step === 'receive' ? 'receive' : 'send';
    switch (step) {
      case 'receive':
        return { kind: SpanKind.CLIENT, ...messaging({ name: step, type, destination: topics.requests, partition }) };
      case 'append':
        return { kind: SpanKind.CLIENT, ...messaging({ name: step, type, destination: topics.ledger, partition }) };
      case 'swap':
        return { kind: SpanKind.CLIENT, name: step, attributes: { 'db.system.name': 'etcd' } as Attributes };
      case 'reply':
        return { kind: SpanKind.CLIENT, ...messaging({ name: step, type, destination: replyTopic }) };
      case 'forward':
        return { kind: SpanKind.CLIENT, ...messaging({ name: step, type, destination: topics.requests }) };
      default:
        return { kind: SpanKind.INTERNAL, name: step, attributes: {} as Attributes };
    }
  }
}

function endAll(spans: readonly Span[], nowMs: number, error?: unknown): void {
  for (const span of spans) {
    if (error !== undefined) fail(span, errorType(error), describeError(error));
    span.end(nowMs);
  }
}
