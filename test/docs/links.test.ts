import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { anchorsOf, linksOf, PAGES, ROOT, readPage } from '../support/docs.ts';

/** What is wrong with a link of a page; undefined if its target exists. */
function fault(page: string, link: string): string | undefined {
  const [path = '', anchor] = link.split('#');
  const target = path === '' ? page : join(dirname(page), path);
  if (target.startsWith('..') || !existsSync(join(ROOT, target))) return `${link}: no such file`;
  if (anchor === undefined || !target.endsWith('.md')) return undefined;
  return anchorsOf(readPage(target)).includes(anchor) ? undefined : `${link}: no such heading`;
}

test('there are pages, and they have links', () => {
  expect(PAGES).toContain('README.md');
  expect(PAGES.flatMap((page) => linksOf(readPage(page))).length).toBeGreaterThan(100);
});

test.for([...PAGES])('the links of %s lead to files and headings that exist', (page) => {
  expect(linksOf(readPage(page)).flatMap((link) => fault(page, link) ?? [])).toEqual([]);
});

test('the index of docs leads to every page below it', () => {
  const links = linksOf(readPage('docs/README.md')).map((link) => join('docs', link.replace(/#.*/, '')));
  const decisions = linksOf(readPage('docs/internals/decisions/README.md'));
  const reached = new Set([...links, ...decisions.map((link) => join('docs/internals/decisions', link))]);
  const pages = PAGES.filter((page) => page.startsWith('docs/') && page !== 'docs/README.md');
  expect(pages.filter((page) => !reached.has(page))).toEqual([]);
});

test('README has at most 150 lines', () => {
  expect(readPage('README.md').trimEnd().split('\n').length).toBeLessThanOrEqual(150);
});
