import { type Context, type Span, SpanKind, type Tracer, trace } from '@opentelemetry/api';
import { describeError, type ErrorCode } from '../errors.ts';
import type { Answer } from '../pipeline/answers.ts';
import type { Accepted } from '../pipeline/intake.ts';
import type { RequestRecord } from '../pipeline/ports.ts';
import type { PartTrace, TracedStep } from '../pipeline/trace.ts';
import { attempt } from './attempt.ts';
import { type Attributes, messaging } from './attributes.ts';
import { errorType, fail } from './failure.ts';

/** The topics of a worker that its spans name. */
export interface StepTopics {
  readonly requests: string;
  readonly ledger: string;
}

/** A part, or one of its requests, whose steps become spans. */
export interface Traced {
  readonly span: Span;
  /** With the span, for its children. */
  readonly context: Context;
  /** Of a request: where its reply goes. */
  readonly replyTopic?: string | undefined;
  /** Of a request: the context that its headers name. */
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
