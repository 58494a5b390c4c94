export interface Json {
  readonly [name: string]: unknown;
}

export interface Parameter extends Json {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description: string;
  readonly schema: Json;
}

export interface Response {
  readonly description: string;
}

export interface Reference {
  readonly $ref: string;
}

export interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly parameters?: readonly (Parameter | Reference)[];
  readonly responses: Readonly<Record<string, Response | Reference>>;
}

interface Path {
  /** Those of all operations of the path. */
  readonly parameters: readonly Reference[];
  readonly [method: string]: Operation | readonly Reference[];
}

/** The parts of the document that docs-page.ts shows. */
export interface OpenApiDocument {
  readonly info: Json & { readonly title: string; readonly description: string };
  readonly paths: Readonly<Record<string, Path>>;
  readonly components: {
    readonly parameters: Readonly<Record<string, Parameter>>;
    readonly responses: Readonly<Record<string, Response>>;
    readonly [kind: string]: unknown;
  };
  readonly [name: string]: unknown;
}

export const ref = (kind: 'schemas' | 'responses' | 'parameters' | 'headers', name: string): Reference => ({
  $ref: `#/components/${kind}/${name}`,
});
export const json = (schema: Json | Reference): Json => ({ 'application/json': { schema } });
export const text = (description: string, more: Json = {}): Json => ({ type: 'string', description, ...more });
export const whole = (description: string, most?: number): Json => ({
  type: 'integer',
  minimum: 0,
  ...(most === undefined ? {} : { maximum: most }),
  description,
});
export const record = (properties: Json): Json => ({ type: 'object', required: Object.keys(properties), properties });

/** In each request, and in each response. */
export const CORRELATION = {
  parameters: [ref('parameters', 'RequestId'), ref('parameters', 'TraceParent')],
  headers: { 'X-Request-Id': ref('headers', 'RequestId'), Traceparent: ref('headers', 'TraceParent') },
};
