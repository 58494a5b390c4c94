// Builds the pages as a static site in .idalloc/site/html. Usage: npm run docs:site
// VitePress and TypeDoc have a lockfile of their own, locks/site, and are installed beside the site, so that no other
// command installs them. TypeDoc brings a TypeScript of its own, because that of the project has no interface for other
// programs.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PLACES } from '../release/places.ts';
import { API_FOLDER, API_SIDEBAR, apiOptions } from './api.mjs';
import { sidebarOf, stagePages } from './pages.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const OUT = join(ROOT, '.idalloc/site');
/** Kinds of files that pages link to and VitePress would take for pages. */
const FILES = 'avsc,yaml,py,go,java,js,sh,json';

function run(command, args) {
  const env = { ...process.env, VITE_EXTRA_EXTENSIONS: FILES };
  const { status, error } = spawnSync(command, args, { cwd: OUT, stdio: 'inherit', env });
  if (error !== undefined) throw error;
  if (status !== 0) process.exit(status ?? 1);
}

mkdirSync(OUT, { recursive: true });
for (const name of ['package.json', 'package-lock.json']) cpSync(join(ROOT, 'locks/site', name), join(OUT, name));
cpSync(join(import.meta.dirname, 'vitepress'), join(OUT, '.vitepress'), { recursive: true });
const facts = {
  version: JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version,
  repository: PLACES.repository.url.replace(/^git\+|\.git$/g, ''),
  sidebar: [...sidebarOf(ROOT), API_SIDEBAR],
};
writeFileSync(join(OUT, '.vitepress/facts.json'), JSON.stringify(facts));
stagePages(ROOT, join(OUT, 'pages'));
cpSync(join(import.meta.dirname, 'logo.svg'), join(OUT, 'pages/public/logo.svg'));
run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund']);
run(process.execPath, ['node_modules/typedoc/bin/typedoc', ...apiOptions(ROOT, join(OUT, 'pages', API_FOLDER))]);
run(process.execPath, ['node_modules/vitepress/bin/vitepress.js', 'build', '.']);
process.stdout.write(`The site is in ${join(OUT, 'html')}\n`);
