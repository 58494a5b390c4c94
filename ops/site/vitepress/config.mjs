// VitePress' configuration; ops/site/build.mjs copies this folder, and adds facts.json, to where the site is built.
import { readFileSync } from 'node:fs';

const { version, repository, sidebar } = JSON.parse(readFileSync(new URL('facts.json', import.meta.url), 'utf8'));

/** As GitHub makes them, so that a link to a heading works there and here. */
function slugify(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
    .replaceAll(' ', '-');
}

/**
 * Writes the heading of its column to each cell: on a phone a row is shown as a list, and the heading is beside the
 * cell.
 */
function nameCells(md) {
  md.core.ruler.push('name-cells', ({ tokens }) => {
    let [headings, column] = [[], 0];
    for (const [at, { type }] of tokens.entries()) {
      if (type === 'table_open') headings = [];
      if (type === 'tr_open') column = 0;
      if (type === 'th_open') headings.push(textOf(tokens[at + 1]));
      if (type === 'td_open') tokens[at].attrSet('data-column', headings[column++] ?? '');
    }
  });
}

/** Lets long names break after an underscore first. */
function breakNames(md) {
  const render = md.renderer.rules.code_inline;
  md.renderer.rules.code_inline = (...given) => render(...given).replaceAll('_', '_<wbr>');
}

function textOf({ children }) {
  return children.map(({ content }) => content).join('');
}

/** VitePress writes a function as text into the site's program, so it can't refer to the repository by a variable. */
const source = JSON.stringify(`${repository}/edit/main/`);
const editLink = new Function('page', `return ${source} + page.filePath.replace(/(^|\\/)index\\.md$/, '$1README.md')`);

export default {
  title: 'idalloc',
  description: '64-bit, time-ordered IDs over Kafka',
  srcDir: 'pages',
  outDir: 'html',
  ignoreDeadLinks: false,
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: '/logo.svg' }]],
  markdown: { anchor: { slugify }, config: (md) => md.use(nameCells).use(breakNames) },
  // The reference of the client's API is made from the code: there is no page to edit.
  transformPageData: ({ relativePath, frontmatter }) => {
    if (relativePath.startsWith('docs/reference/api/')) return { frontmatter: { ...frontmatter, editLink: false } };
  },
  themeConfig: {
    logo: '/logo.svg',
    editLink: { pattern: editLink, text: 'Edit this page' },
    nav: [
      { text: 'Quickstart', link: '/docs/quickstart' },
      { text: 'Concepts', link: '/docs/concepts' },
      { text: 'Runbook', link: '/docs/operations/runbook' },
      { text: 'Repository', link: repository },
      { text: version, link: '/CHANGELOG' },
    ],
    sidebar,
    outline: [2, 3],
    search: { provider: 'local' },
  },
};
