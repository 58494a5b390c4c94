import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import protobuf from 'protobufjs';

/** The part of OpenTelemetry's protocol that tests read; its numbers are those of the published schema. */
const SCHEMA = `
  syntax = "proto3";
  message Request { repeated ResourceSpans resource_spans = 1; }
  message ResourceSpans { Resource resource = 1; repeated ScopeSpans scope_spans = 2; }
  message Resource { repeated KeyValue attributes = 1; }
  message ScopeSpans { Scope scope = 1; repeated Span spans = 2; string schema_url = 3; }
  message Scope { string name = 1; string version = 2; }
  message Span {
    bytes trace_id = 1; bytes span_id = 2; bytes parent_span_id = 4; string name = 5; int32 kind = 6;
    fixed64 start_time_unix_nano = 7; fixed64 end_time_unix_nano = 8;
    repeated KeyValue attributes = 9; repeated Link links = 13; Status status = 15;
  }
  message Link { bytes trace_id = 1; bytes span_id = 2; }
  message Status { string message = 2; int32 code = 3; }
  message KeyValue { string key = 1; Value value = 2; }
  message Value { oneof value { string string_value = 1; bool bool_value = 2; int64 int_value = 3; double double_value = 4; } }
`;
const REQUEST = protobuf.parse(SCHEMA).root.lookupType('Request');
const KINDS = ['unspecified', 'internal', 'server', 'client', 'producer', 'consumer'];

/** A span as it was received; IDs are hexadecimal digits, `parent` is empty for a root. */
export interface ReceivedSpan {
  readonly service: unknown;
  readonly scope: string;
  readonly schemaUrl: string;
  readonly traceId: string;
  readonly spanId: string;
  readonly parent: string;
  readonly name: string;
  readonly kind: string | undefined;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly links: readonly string[];
  readonly failed: boolean;
  /** Milliseconds since 1970, exact to a microsecond. */
  readonly startMs: number;
  readonly endMs: number;
}

/** Receives spans over HTTP, in protobuf, as a collector does. */
export class OtlpReceiver implements AsyncDisposable {
  readonly spans: ReceivedSpan[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(): Promise<OtlpReceiver> {
    const server = createServer((request, response) => {
      receiver.#take(request).then(
        () => response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end(),
        (error: unknown) => response.writeHead(400).end(String(error)),
      );
    });
    const receiver = new OtlpReceiver(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return receiver;
  }

  /** The base address, for OTEL_EXPORTER_OTLP_ENDPOINT. */
  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async #take(request: IncomingMessage): Promise<void> {
    if (request.url !== '/v1/traces') throw new Error(`spans are not expected at ${request.url}`);
    this.spans.push(...decodeSpans(await buffer(request)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

type Attributes = readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[];

interface Exported {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: Attributes };
    readonly scopeSpans: readonly {
      readonly scope: { readonly name: string };
      readonly schemaUrl: string;
      readonly spans: readonly ExportedSpan[];
    }[];
  }[];
}

interface ExportedSpan {
  readonly traceId: Uint8Array;
  readonly spanId: Uint8Array;
  readonly parentSpanId: Uint8Array;
  readonly name: string;
  readonly kind: number;
  readonly attributes: Attributes;
  readonly links: readonly { readonly spanId: Uint8Array }[];
  readonly status: { readonly code: number } | null;
  readonly startTimeUnixNano: number;
  readonly endTimeUnixNano: number;
}

/** The spans in a request to a collector. */
export function decodeSpans(body: Uint8Array): ReceivedSpan[] {
  const message = REQUEST.toObject(REQUEST.decode(body), { longs: Number, arrays: true, defaults: true });
  return spansOf(message as Exported);
}

function spansOf({ resourceSpans }: Exported): ReceivedSpan[] {
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ scope, schemaUrl, spans }) =>
      spans.map(({ name, kind, traceId, spanId, parentSpanId, attributes, links, status, ...times }) => ({
        service: valuesOf(resource.attributes)['service.name'],
        scope: scope.name,
        schemaUrl,
        traceId: hex(traceId),
        spanId: hex(spanId),
        parent: hex(parentSpanId),
        name,
        kind: KINDS[kind],
        attributes: valuesOf(attributes),
        links: links.map((link) => hex(link.spanId)),
        failed: status?.code === 2,
        startMs: times.startTimeUnixNano / 1e6,
        endMs: times.endTimeUnixNano / 1e6,
      })),
    ),
  );
}

/** Only the member of the `oneof` that is set; `defaults` would add the others. */
function valuesOf(attributes: Attributes): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}
