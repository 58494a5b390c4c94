import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type Block, blocksOf, PAGES, ROOT, readPage } from '../support/docs.ts';
import { PROGRAMS_RUN_BY, TRIED_BY } from '../support/shown-commands.ts';

/**
 * Languages of blocks that are not snippets: commands, which commands.test.ts checks, and drawings, formats and output.
 */
const NO_SNIPPET = new Set(['sh', 'console', 'text', '']);
const EXAMPLES = globSync('examples/*/*.{py,go,java,js}', { cwd: ROOT }).map((path) =>
  readFileSync(join(ROOT, path), 'utf8'),
);

const SNIPPETS = PAGES.flatMap((page) =>
  blocksOf(readPage(page)).flatMap((block) => (NO_SNIPPET.has(block.language) ? [] : [{ page, block }])),
);

/** How deep an excerpt may be indented in its example; on its page it begins at the margin. */
const INDENTS = ['', '  ', '    ', '\t'];

/** The clients in examples are run by the interop tests. */
function isExcerpt({ body }: Block): boolean {
  const texts = INDENTS.map((indent) => body.map((line) => `${line === '' ? '' : indent}${line}\n`).join(''));
  return EXAMPLES.some((example) => texts.some((text) => example.includes(text)));
}

test('there are snippets in several languages', () => {
  expect(new Set(SNIPPETS.map(({ block }) => block.language)).size).toBeGreaterThan(2);
});

test('each snippet is an excerpt of an example that the tests run, or its page has a test', () => {
  const unrun = SNIPPETS.filter(
    ({ page, block }) => !isExcerpt(block) && !PROGRAMS_RUN_BY.has(page) && !TRIED_BY.has(page),
  );
  expect(unrun.map(({ page, block }) => `${page}, line ${block.line}`)).toEqual([]);
});

test('a test that runs the snippets of a page names it', () => {
  const unnamed = [...PROGRAMS_RUN_BY].filter(
    ([page, file]) => !readFileSync(join(ROOT, file), 'utf8').includes(`'${page}'`),
  );
  expect(unnamed).toEqual([]);
});
