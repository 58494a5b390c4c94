import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { inlineCode, ROOT, readPage } from '../support/docs.ts';

const SOURCES = globSync('src/**/*.ts', { cwd: ROOT }).map((path) => readFileSync(join(ROOT, path), 'utf8'));
/** Texts of several words that are no messages: commands, calls, SQL and options. */
const OTHERS = /^(bin\/)?idalloc |^await |^ORDER BY |^prefetch: |\(/;

test('the messages that the page of troubleshooting shows are those of the code', () => {
  const texts = inlineCode(readPage('docs/operations/troubleshooting.md'));
  const messages = texts.filter((text) => text.includes(' ') && !OTHERS.test(text));
  expect(messages.length).toBeGreaterThan(8);
  expect(messages.filter((text) => !SOURCES.some((source) => source.includes(text)))).toEqual([]);
});
