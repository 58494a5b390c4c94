import { isUtf8 } from 'node:buffer';
import type { Span, SpanStatusCode } from '@opentelemetry/api';
import { IdallocError } from '../errors.ts';

/** The version of OpenTelemetry's semantic conventions for messaging that names and attributes of spans follow. */
const SEMANTIC_CONVENTIONS = '1.44.0';

export const SCHEMA_URL = `https://opentelemetry.io/schemas/${SEMANTIC_CONVENTIONS}`;

/** An operation on messages. `type` is from the conventions, `name` is ours; without a destination it has several. */
interface SpanOperation {
  readonly name: string;
  readonly type: 'send' | 'receive' | 'process';
  readonly destination: string | undefined;
  readonly partition?: number | undefined;
}

export type Attributes = Record<string, string | number | boolean>;

/** The name of a span for an operation on messages, and its attributes. */
export function messaging({ name, type, destination, partition }: SpanOperation): {
  name: string;
  attributes: Attributes;
} {
  const attributes: Attributes = {
    'messaging.system': 'kafka',
    'messaging.operation.name': name,
    'messaging.operation.type': type,
  };
  if (destination === undefined) return { name, attributes };
  attributes['messaging.destination.name'] = destination;
  if (partition !== undefined) attributes['messaging.destination.partition.id'] = String(partition);
  return { name: `${name} ${destination}`, attributes };
}

/** What a request is about: the same of a client and of a worker. */
export function requestAttributes(request: {
  readonly correlationId?: Buffer | undefined;
  readonly count?: number;
  readonly sequence?: string | undefined;
}): Attributes {
  const { correlationId, count, sequence } = request;
  const attributes: Attributes = {};
  if (correlationId !== undefined) {
    // It may be any bytes.
    const text = correlationId.toString(isUtf8(correlationId) ? 'utf8' : 'hex');
    attributes['messaging.message.conversation_id'] = text;
  }
  if (count !== undefined) attributes['idalloc.count'] = count;
  if (sequence !== undefined) attributes['idalloc.sequence'] = sequence;
  return attributes;
}

/** The result, or undefined if `work` throws: what an operator's SDK does must not disturb the requests. */
export function attempt<T>(onError: (error: unknown) => void, work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    onError(error);
    return undefined;
  }
}

/** As a constant, since services may use the client without the API. */
const ERROR: SpanStatusCode.ERROR = 2;

/** Marks what a span stands for as failed. */
export function fail(span: Pick<Span, 'setAttribute' | 'setStatus'>, type: string, message?: string): void {
  span.setAttribute('error.type', type);
  span.setStatus(message === undefined ? { code: ERROR } : { code: ERROR, message });
}

/** What `error.type` is for anything thrown. */
export function errorType(error: unknown): string {
  if (error instanceof IdallocError) return error.code;
  return error instanceof Error ? error.name : '_OTHER';
}

type TracingApi = Pick<typeof import('@opentelemetry/api'), 'trace' | 'ProxyTracerProvider'>;

/**
 * Whether spans have somewhere to go: an SDK is registered with the API, by us or by whoever started the process. It
 * may be with another copy of the API, whose provider is of another class.
 */
export function hasProvider({ trace, ProxyTracerProvider }: TracingApi): boolean {
  const provider = trace.getTracerProvider();
  return !(provider instanceof ProxyTracerProvider) || provider.getDelegateTracer('idalloc') !== undefined;
}
