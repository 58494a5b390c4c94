import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { SPANS_PER_SECOND } from '../../src/tracing/part-spans.ts';
import { SCHEMA_URL } from '../../src/tracing/spans.ts';
import { readPage } from '../support/docs.ts';

const PAGE = readPage('docs/operations/traces.md');
const ROOT = join(import.meta.dirname, '../..');

/** The names of attributes in a text. */
function attributesIn(text: string, quote: string): string[] {
  const names = text.matchAll(new RegExp(`${quote}((?:messaging|idalloc|error)\\.[a-z_.]+)${quote}`, 'g'));
  return [...new Set([...names].map(([, name = '']) => name))].sort();
}

test('the page of traces has every attribute of the spans, and no other', () => {
  const files = globSync(['src/tracing/*.ts', 'src/client/spans.ts'], { cwd: ROOT });
  const code = files.map((file) => readFileSync(join(ROOT, file), 'utf8')).join('\n');
  expect(attributesIn(PAGE, '`')).toEqual(attributesIn(code, "'"));
});

test('the page of traces names the version of the conventions, and the limits', () => {
  const { requests, parts } = SPANS_PER_SECOND;
  expect(PAGE).toContain(`for messaging ${SCHEMA_URL.split('/').at(-1)}`);
  expect(PAGE).toContain(`${requests} requests and ${parts} parts a second`);
});
