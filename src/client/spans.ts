import { describeError } from '../errors.ts';
import { attempt, errorType, fail, hasProvider, messaging, requestAttributes, SCHEMA_URL } from '../tracing/spans.ts';
import type { BatchRequest, Delivered } from './requester.ts';

/**
 * Sends a request, and follows it until its reply or error. `isAhead`: it is for the buffer, and nobody waits for it
 * yet.
 */
export type FollowRequest = <R extends Delivered>(
  request: BatchRequest,
  isAhead: boolean,
  send: (request: BatchRequest) => Promise<R>,
) => Promise<R>;

type TracingApi = typeof import('@opentelemetry/api');

/** A service with traces has it. A variable, with marks at its import, so that bundlers leave the import alone. */
const PACKAGE = '@opentelemetry/api';
const loadApi = async (): Promise<TracingApi> => await import(/* webpackIgnore: true */ /* @vite-ignore */ PACKAGE);

/**
 * Follows each request to this topic with a span, and sends its context along. Undefined without OpenTelemetry's API;
 * while no SDK is registered with it, requests are only sent.
 */
export async function requestSpans(requestTopic = 'id.requests', load = loadApi): Promise<FollowRequest | undefined> {
  // A client works without it, so whatever is wrong with it is for the service to find.
  const api = await load().catch(() => undefined);
  if (api === undefined) return undefined;
  const { context, propagation, trace, ROOT_CONTEXT, SpanKind } = api;
  const { name, attributes: about } = messaging({ name: 'request', type: 'send', destination: requestTopic });
  const begin = (request: BatchRequest, isAhead: boolean) => {
    const attributes = { ...about, ...requestAttributes(request), 'idalloc.ahead': isAhead };
    // What fills the buffer belongs to no caller, not even to the one that happened to take the last ID above the mark.
    const parent = isAhead ? ROOT_CONTEXT : context.active();
    const tracer = trace.getTracerProvider().getTracer('@idalloc/client', undefined, { schemaUrl: SCHEMA_URL });
    const span = tracer.startSpan(name, { kind: SpanKind.PRODUCER, attributes }, parent);
    const headers: Record<string, string> = {};
    propagation.inject(trace.setSpan(parent, span), headers);
    const { baggage: _own, ...carried } = headers; // baggage is the service's own, and workers make no use of it
    return { span, headers: carried };
  };
  return async (request, isAhead, send) => {
    const begun = hasProvider(api) ? attempt(ignore, () => begin(request, isAhead)) : undefined;
    if (begun === undefined) return send(request);
    const { span, headers } = begun;
    try {
      const reply = await send({ ...request, headers });
      attempt(ignore, () => span.setAttribute('idalloc.result', reply.replayed ? 'replayed' : 'issued'));
      return reply;
    } catch (error) {
      attempt(ignore, () => fail(span, errorType(error), describeError(error)));
      throw error;
    } finally {
      attempt(ignore, () => span.end());
    }
  };
}

/** An SDK that throws is the service's; its requests must not fail for that. */
function ignore(): void {}
