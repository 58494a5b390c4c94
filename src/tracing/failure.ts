import type { Span, SpanStatusCode } from '@opentelemetry/api';
import { IdallocError } from '../errors.ts';

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
