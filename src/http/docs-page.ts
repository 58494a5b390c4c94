import { createHash } from 'node:crypto';
import type { OpenApiDocument, Operation, Parameter, Reference, Response } from './openapi-components.ts';

const STYLE = `:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}
body{max-width:60rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}
section{border-top:1px solid #8888;margin-top:1.5rem}
table{border-collapse:collapse;width:100%}
td{border-top:1px solid #8884;padding:.3rem .6rem .3rem 0;vertical-align:top}
td:first-child{width:11rem}
code{font-family:ui-monospace,monospace}
h2 code{font-size:1.1rem}
@media(max-width:40rem){td{display:block;width:auto}td+td{border:0;padding-top:0}}`;

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
    Object.entries(methods as Readonly<Record<string, Operation>>).map(([method, operation]) => {
      const { parameters: own = [], responses } = operation;
      const asked = [...own, ...shared].map((one) => resolved(components.parameters, one));
      const answers = Object.entries(responses).map(
        ([status, one]) => [status, resolved(components.responses, one)] as const,
      );
      return section(method, path, operation, asked, answers);
    }),
  );
  return [
    `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">`,
    `<title>${escaped(info.title)}: HTTP API</title><style>${STYLE}</style>`,
    `<h1>${escaped(info.title)}: HTTP API</h1><p>${escaped(info.description)}</p>`,
    `<p>For programs: <a href="/api/v1/openapi.json">openapi.json</a>, OpenAPI 3.1.</p>`,
    ...sections,
    '</html>',
  ].join('\n');
}

function resolved<T extends object>(known: Readonly<Record<string, T>>, one: T | Reference): T {
  const name = '$ref' in one ? String(one.$ref).split('/').at(-1) : undefined;
  const found = name === undefined ? (one as T) : known[name];
  if (found === undefined) throw new RangeError(`the document has no ${name}`);
  return found;
}

function section(
  method: string,
  path: string,
  { operationId, summary, description }: Operation,
  parameters: readonly Parameter[],
  responses: readonly (readonly [string, Response])[],
): string {
  const asked = parameters.map(({ name, in: place, required, schema, description: meaning }) =>
    row(`${code(name)}<br>${place}, ${required === true ? 'required' : 'optional'}`, escaped(meaning) + bounds(schema)),
  );
  const answers = responses.map(([status, { description: meaning }]) => row(code(status), escaped(meaning)));
  return [
    `<section id="${operationId}"><h2>${code(`${method.toUpperCase()} ${path}`)}</h2><p>${escaped(summary)}.`,
    `${escaped(description ?? '')}</p><h3>Parameters</h3><table>${asked.join('')}</table>`,
    `<h3>Responses</h3><table>${answers.join('')}</table></section>`,
  ].join('\n');
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
