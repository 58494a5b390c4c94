import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { run } from '../../ops/dev/run.ts';
import { PLACES } from '../../ops/release/places.ts';
import { PAGES } from '../support/docs.ts';
import { chromium } from '../support/example-tools.ts';

const HTML = join(ROOT, '.idalloc/site/html');
const PROBE = join(ROOT, 'test/support/site-probe.html');
const BUILD_MS = 600_000;
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
};
/** A phone, and three desktops: below, at and above the width at which the sidebar stands beside a centred layout. */
const WIDTHS = [390, 1_280, 1_440, 1_680];

/** The paths of all drawings. */
const DRAWN = readdirSync(join(ROOT, 'docs/drawings')).map((name) => `/docs/drawings/${name}`);

interface Fault {
  readonly width: number;
  readonly page: string;
  readonly what: string;
}

/** The path of a page in the site. */
const pathOf = (page: string) => `/${page.replace(/README\.md$/, 'index.md').replace(/\.md$/, '.html')}`;

beforeAll(async () => {
  const args = [join(ROOT, 'ops/site/build.mjs')];
  await run({ command: process.execPath, args, cwd: ROOT, purpose: 'npm run docs:site', timeoutMs: BUILD_MS });
}, BUILD_MS);

describe('in Chromium', async () => {
  const tool = await chromium();
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-site-'));
  let server: Server;
  let browser: ChildProcess | undefined;
  const found = Promise.withResolvers<readonly Fault[]>();

  beforeAll(async () => {
    server = createServer(async (request, response) => {
      const [path = '/'] = (request.url ?? '/').split('?');
      if (path === '/wanted') {
        return void response.end(JSON.stringify({ pages: PAGES.map(pathOf), widths: WIDTHS, drawings: DRAWN }));
      }
      if (path === '/found') {
        found.resolve(JSON.parse(await text(request)));
        return void response.end();
      }
      const file = path === '/probe' ? PROBE : join(DRAWN.includes(path) ? ROOT : HTML, path);
      if (!existsSync(file)) return void response.writeHead(404).end();
      response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream');
      return void response.end(readFileSync(file));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
  });

  afterAll(async () => {
    if (browser !== undefined && browser.exitCode === null && browser.kill()) await once(browser, 'exit');
    server.close();
    server.closeAllConnections();
    rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
  });

  test('nothing is cut off or wider than the window on any page, at each width', async (context) => {
    if ('unavailable' in tool && !process.env.CI) context.skip(tool.unavailable);
    if ('unavailable' in tool) throw new Error(`CI is set, so the browser must be tested: ${tool.unavailable}`);
    const { port } = server.address() as AddressInfo;
    browser = spawn(
      tool.path,
      [
        ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-sync'],
        ...['--disable-background-networking', '--disable-component-update', '--window-size=1800,1000'],
        ...['--remote-debugging-port=0', `--user-data-dir=${dir}`, `http://127.0.0.1:${port}/probe`],
      ],
      { stdio: 'ignore' },
    );
    const ended = once(browser, 'exit').then(([code]) => Promise.reject(new Error(`Chromium ended with ${code}`)));
    const faults = await Promise.race([found.promise, ended]);
    const lines = faults.map(({ width, page, what }) => `${width} ${page}: ${what}`);
    expect(lines.slice(0, 50)).toEqual([]);
  });
});

test('each page has a logo, a favicon, the repository, the version, and a link to edit its source', () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const repository = PLACES.repository.url.replace(/^git\+|\.git$/g, '');
  expect(PAGES.length).toBeGreaterThan(30);
  const missing = PAGES.flatMap((page) => {
    const html = readFileSync(join(HTML, pathOf(page)), 'utf8');
    const wanted = {
      favicon: html.includes('<link rel="icon" type="image/svg+xml" href="/logo.svg">'),
      logo: /<img[^>]* src="\/logo\.svg"/.test(html),
      repository: html.includes(`href="${repository}"`),
      version: new RegExp(`<span[^>]*>${RegExp.escape(version)}</span>`).test(html),
      source: html.includes(`href="${repository}/edit/main/${page}"`),
    };
    return Object.entries(wanted).flatMap(([what, isThere]) => (isThere ? [] : [`${page}: ${what}`]));
  });
  expect(missing).toEqual([]);
  expect(existsSync(join(HTML, 'logo.svg'))).toBe(true);
  const made = readFileSync(join(HTML, 'docs/reference/api/client.html'), 'utf8');
  expect(made.includes(`href="${repository}/edit/main/`)).toBe(false);
});

test('a page has its pictures, and a link to a file opens it beside the page', () => {
  const concepts = readFileSync(join(HTML, 'docs/concepts.html'), 'utf8');
  expect(/<img src="[^"]+\.svg" alt="One request: /.test(concepts)).toBe(true);
  const html = readFileSync(join(HTML, 'docs/reference/wire-format.html'), 'utf8');
  expect(/<a href="[^"]*asyncapi\.yaml" target="_blank"/.test(html)).toBe(true);
});
