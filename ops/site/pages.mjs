import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

/** A picture's `!`, the path and the anchor. */
const LINK = /(!?)(\[[^\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)/g;

/** Paths of all pages, from the root of the checkout. */
export function pagesOf(root) {
  const below = readdirSync(join(root, 'docs'), { recursive: true }).map((name) => join('docs', name));
  return [...readdirSync(root), ...below].filter((path) => path.endsWith('.md'));
}

/**
 * Copies the pages to `target`, each README as the index of its folder, and the other files that they link to to
 * `target`/public. Pages and their pictures keep their places, so that their links need no change but for that.
 *
 * @throws Error for a link to a file that does not exist, or to a folder, which a static site can't list.
 */
export function stagePages(root, target) {
  rmSync(target, { recursive: true, force: true });
  for (const page of pagesOf(root)) {
    const text = readFileSync(join(root, page), 'utf8').replaceAll(LINK, (whole, mark, name, path, anchor = '') => {
      if (/^[a-z]+:/.test(path)) return whole;
      const file = relative(root, join(root, dirname(page), path));
      if (file.endsWith('.md')) return `${name}(${path.replace(/README\.md$/, 'index.md')}${anchor})`;
      if (mark === '!') {
        write(join(target, file), readFileSync(join(root, file)));
        return whole;
      }
      write(join(target, 'public', file), readFileSync(join(root, file)));
      return `${name}(${path}){target=_blank}`;
    });
    write(join(target, page.replace(/README\.md$/, 'index.md')), text);
  }
}

function write(path, content) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
}

/** The sidebar: the headings and links of the documentation's index, in its order. */
export function sidebarOf(root) {
  const parts = readFileSync(join(root, 'docs/README.md'), 'utf8').split(/^## /m).slice(1);
  const start = [
    { text: 'Quickstart', link: '/docs/quickstart' },
    { text: 'Concepts', link: '/docs/concepts' },
    { text: 'Glossary', link: '/docs/glossary' },
  ];
  const groups = [
    { text: 'Start', items: start },
    ...parts.map((part) => ({
      text: part.split('\n', 1)[0],
      items: [...part.matchAll(/\[([^\]]+)\]\(([^)#]+\.md)\)/g)].map(([, text, path]) => ({
        text: text.charAt(0).toUpperCase() + text.slice(1),
        link: `/${join('docs', path).replace(/(README)?\.md$/, '')}`,
      })),
    })),
  ];
  return groups.filter(({ items }) => items.length > 0);
}
