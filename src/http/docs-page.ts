import { createHash } from 'node:crypto';
import type { Json, OpenApiDocument, Operation, Parameter, Reference, Response } from './openapi-components.ts';

const STYLE = `:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
body{max-width:60rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}
section{border-top:1px solid #8888;margin-top:1.5rem}
table{border-collapse:collapse;width:100%}
td{border-top:1px solid #8884;padding:.3rem .6rem .3rem 0;vertical-align:top}
td:first-child{width:11rem}
code{font-family:ui-monospace,monospace}
h2 code{font-size:1.1rem}
pre{margin:.3rem 0;padding:.6rem;background:#8882;white-space:pre-wrap;font:.85rem/1.4 ui-monospace,monospace}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:1rem}
.pair>div{min-width:0}
@media(max-width:40rem){td{display:block;width:auto}td+td{border:0;padding-top:0}.pair{display:block}}`;

/**
 * The page runs no script and loads nothing, so whatever a description may contain one day, it can't do anything
 * either.
 */
export const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': `default-src 'none'; style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'; frame-ancestors 'none'`,
  'x-content-type-options': 'nosniff',
};

/** The page for people, from the document for programs. */
export function docsPage({ info, paths, components }: OpenApiDocument): string {
  const sections = Object.entries(paths).flatMap(([path, { parameters: shared = [], ...methods }]) =>
    Object.entries(methods as Readonly<Record<string, Operation>>).map(([method, operation]) =>
      section(method, path, operation, shared, components),
    ),
  );
  const { Problem = {} } = components.schemas;
  return [
    `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">`,
    `<title>${escaped(info.title)}: HTTP API</title><style>${STYLE}</style>`,
    `<h1>${escaped(info.title)}: HTTP API</h1><p>${escaped(info.description)}</p>`,
    `<p>For programs: <a href="/api/v1/openapi.json">openapi.json</a>, OpenAPI 3.1.</p>`,
    ...sections,
    `<section id="problem"><h2>Errors</h2><p>Each error is a problem document of RFC 9457 with these fields.</p>`,
    `${fieldsTable(Problem, components.schemas)}</section>`,
    '</html>',
  ].join('\n');
}

function resolved<T extends object>(known: Readonly<Record<string, T>>, one: T | Reference): T {
  const name = nameIn(one);
  const found = name === undefined ? (one as T) : known[name];
  if (found === undefined) throw new RangeError(`the document has no ${name}`);
  return found;
}

/** The last part of a reference. */
function nameIn(one: object): string | undefined {
  return '$ref' in one ? String(one.$ref).split('/').at(-1) : undefined;
}

function section(
  method: string,
  path: string,
  { operationId, summary, description, parameters: own = [], responses, 'x-codeSamples': samples = [] }: Operation,
  shared: readonly Reference[],
  components: OpenApiDocument['components'],
): string {
  const asked = [...own, ...shared]
    .map((one) => resolved(components.parameters, one))
    .map(({ name, in: place, required, schema, description: meaning }) =>
      row(
        `${code(name)}<br>${place}, ${required === true ? 'required' : 'optional'}`,
        escaped(meaning) + bounds(schema),
      ),
    );
  const all = Object.entries(responses).map(([status, one]) => [status, resolved(components.responses, one)] as const);
  const hasBody = method !== 'head';
  const answers = all.map(([status, response]) =>
    row(
      code(status),
      escaped(response.description) + (hasBody && status !== '200' ? blocks(examplesOf(response)) : ''),
    ),
  );
  const success = hasBody ? resolved(components.responses, responses['200'] ?? { description: '' }) : undefined;
  const shown = success === undefined ? [] : examplesOf(success);
  return [
    `<section id="${operationId}"><h2>${code(`${method.toUpperCase()} ${path}`)}</h2><p>${escaped(summary)}.`,
    `${escaped(description ?? '')}</p>`,
    `<div class="pair"><div><h3>Request</h3>${blocks(samples.map(({ source }) => source))}</div>`,
    shown.length === 0 ? '</div>' : `<div><h3>Response</h3>${blocks(shown)}</div></div>`,
    `<h3>Parameters</h3><table>${asked.join('')}</table>`,
    success === undefined ? '' : fieldsOf(success, components.schemas),
    `<h3>Responses</h3><table>${answers.join('')}</table></section>`,
  ].join('\n');
}

/** The bodies that a response shows, as JSON that is easy to read. */
function examplesOf({ content = {} }: Response): readonly string[] {
  return Object.values(content).flatMap(({ example, examples = {} }) => {
    const all = [...(example === undefined ? [] : [example]), ...Object.values(examples).map(({ value }) => value)];
    return all.map((value) => JSON.stringify(value, undefined, 2));
  });
}

/** The fields of a response's body; nothing for one without. */
function fieldsOf({ content = {} }: Response, schemas: Schemas): string {
  const tables = Object.values(content).flatMap(({ schema = {} }) => {
    const kinds = ('oneOf' in schema ? schema.oneOf : [schema]) as readonly (Json | Reference)[];
    return kinds.map((kind) => resolved(schemas, kind)).filter(({ properties }) => properties !== undefined);
  });
  return tables.map((schema) => `<h3>Fields</h3>${fieldsTable(schema, schemas)}`).join('');
}

type Schemas = OpenApiDocument['components']['schemas'];

function fieldsTable(schema: Json, schemas: Schemas): string {
  return `<table>${fieldRows(schema, schemas, '').join('')}</table>`;
}

/** A row for each field. Those inside others have the way to them in their names, as in `ids[].breakdown.worker_id`. */
function fieldRows({ properties = {}, required = [] }: Json, schemas: Schemas, before: string): readonly string[] {
  const needed = required as readonly string[];
  return Object.entries(properties as Readonly<Record<string, Json | Reference>>).flatMap(([name, one]) => {
    const field = resolved(schemas, one);
    const inner = field.type === 'array' ? resolved(schemas, field.items as Json | Reference) : field;
    const place = `${before}${name}${field.type === 'array' ? '[]' : ''}`;
    const kind = `${inner.type}${needed.includes(name) ? '' : ', if asked for'}`;
    const own =
      inner.properties === undefined
        ? [row(`${code(place)}<br>${kind}`, escaped(String(field.description ?? inner.description ?? '')))]
        : [];
    return [...own, ...fieldRows(inner, schemas, `${place}.`)];
  });
}

function blocks(texts: readonly string[]): string {
  return texts.map((text) => `<pre>${escaped(text)}</pre>`).join('');
}

function bounds(schema: Parameter['schema']): string {
  const shown = Object.entries(schema).filter(([name]) => name !== 'type');
  return shown.map(([name, value]) => `<br>${escaped(name)}: ${code(String(value).replaceAll(',', ', '))}`).join('');
}

function row(left: string, right: string): string {
  return `<tr><td>${left}</td><td>${right}</td></tr>`;
}

function code(text: string): string {
  return `<code>${escaped(text)}</code>`;
}

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
