import { readFileSync } from 'node:fs';
import type { Environment } from '../../config/parse.ts';
import { textOf } from '../../config/secret-file.ts';
import { VARIABLES } from '../../config/variables.ts';

/**
 * How a bundle stays without secrets. No part of it should have one: neither the log nor the status page shows any. But
 * a bundle leaves the house, and a server's message or another program's log line may repeat what it was sent. So each
 * text is searched for what is configured, in the forms in which texts carry it.
 */

const HIDDEN = '[SECRET]';
/** Variables of other programs, such as AWS_SECRET_ACCESS_KEY and OTEL_EXPORTER_OTLP_HEADERS. */
const OF_OTHERS = /SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|_KEY$|HEADERS$/;
/** What another program's variable is set to may be as plain as 1 or true, which stands everywhere. */
const SHORTEST_OF_OTHERS = 8;
/** A shorter line of a key is its last one. */
const SHORTEST_KEY_LINE = 16;

/** A function that replaces the configured secrets in a text. Throws for a file of a secret that can't be read. */
export function redactor(env: Environment): (text: string) => string {
  const forms = new Set(secretsOf(env).flatMap(formsOf));
  const longestFirst = [...forms].sort((a, b) => b.length - a.length);
  return (text) => longestFirst.reduce((rest, secret) => rest.replaceAll(secret, HIDDEN), text);
}

/** What is set, without secrets: the values of our plain variables, and of all others of interest that they are set. */
export function variablesView(env: Environment): Readonly<Record<string, string>> {
  const rows: Readonly<Record<string, { readonly secret: boolean }>> = VARIABLES;
  const view: Record<string, string> = {};
  for (const [name, value = ''] of Object.entries(env)) {
    if (value === '') continue;
    const row = rows[name];
    if (row !== undefined) view[name] = row.secret ? '(set)' : value;
    else if (rows[name.replace(/_FILE$/, '')]?.secret === true) view[name] = '(a file)';
    else if (/^(AWS|OTEL|NODE|SSL)_/.test(name)) view[name] = '(set)';
  }
  return view;
}

function secretsOf(env: Environment): string[] {
  const own = Object.entries(VARIABLES).flatMap(([name, { secret, unit }]) =>
    secret ? partsOf(unit, setText(env, name)) : [],
  );
  const others = Object.entries(env).flatMap(([name, value = '']) =>
    OF_OTHERS.test(name) && !Object.hasOwn(VARIABLES, name) && value.length >= SHORTEST_OF_OTHERS ? [value] : [],
  );
  return [...own, ...others].filter((secret) => secret !== '');
}

function setText(env: Environment, name: string): string {
  const path = env[`${name}_FILE`];
  return path ? textOf(readFileSync(path, 'utf8')) : (env[name] ?? '');
}

/** The secrets in the value of a variable, by its unit. */
function partsOf(unit: string, value: string): string[] {
  const lines = value.split('\n').map((line) => line.trim());
  switch (unit) {
    case 'quotas': // read from a file as secrets are, but none
      return [];
    case 'PEM': // certificates are public
      if (!value.includes('PRIVATE KEY-----')) return [];
      return lines.filter((line) => !line.startsWith('-----') && line.length >= SHORTEST_KEY_LINE);
    case 'text':
      return [value];
    default: // name:secret, and after a space what it may do
      return lines.map((line) => line.slice(line.indexOf(':') + 1).split(/\s/, 1)[0] ?? '');
  }
}

/** As it is, in JSON, in a URL, and as headers and Kubernetes carry it. */
function formsOf(secret: string): string[] {
  const base64 = Buffer.from(secret).toString('base64');
  return [secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret), base64];
}
