// VitePress' configuration; ops/site/build.mjs copies this folder, and adds sidebar.json, to where the site is built.
import { readFileSync } from 'node:fs';

const sidebar = JSON.parse(readFileSync(new URL('sidebar.json', import.meta.url), 'utf8'));

/** As GitHub makes them, so that a link to a heading works there and here. */
function slugify(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
    .replaceAll(' ', '-');
}

export default {
  title: 'idalloc',
  description: '64-bit, time-ordered IDs over Kafka',
  srcDir: 'pages',
  outDir: 'html',
  ignoreDeadLinks: false,
  markdown: { anchor: { slugify } },
  themeConfig: {
    nav: [
      { text: 'Quickstart', link: '/docs/quickstart' },
      { text: 'Concepts', link: '/docs/concepts' },
      { text: 'Runbook', link: '/docs/operations/runbook' },
    ],
    sidebar,
    outline: [2, 3],
    search: { provider: 'local' },
  },
};
