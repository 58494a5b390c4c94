import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { DRAWINGS } from '../../ops/drawings/drawings.ts';
import { svgOf } from '../../ops/drawings/svg.ts';
import { linksOf, PAGES, ROOT, readPage } from '../support/docs.ts';

const DIR = join(ROOT, 'docs/drawings');

test.for(DRAWINGS)('the drawing $name is current; else run `npm run docs:drawings`', (drawing) => {
  expect(readFileSync(join(DIR, `${drawing.name}.svg`), 'utf8')).toBe(svgOf(drawing));
});

test('there are no other drawings, and each is shown by a page', () => {
  expect(readdirSync(DIR).toSorted()).toEqual(DRAWINGS.map(({ name }) => `${name}.svg`).toSorted());
  const shown = new Set(PAGES.flatMap((page) => linksOf(readPage(page))).map((link) => link.split('/').at(-1)));
  expect(DRAWINGS.filter(({ name }) => !shown.has(`${name}.svg`))).toEqual([]);
});

test('each has colours for a light and a dark background, a title and a description', () => {
  for (const drawing of DRAWINGS) {
    const svg = svgOf(drawing);
    const [light = '', dark = ''] = [...svg.matchAll(/:root\{([^}]*)\}/g)].map(([, colours]) => colours);
    const names = (colours: string) => colours.split(';').map((one) => one.split(':')[0]);
    expect(names(dark)).toEqual(names(light));
    expect(svg).toContain('@media(prefers-color-scheme:dark)');
    expect(svg).toContain(`<title id="t">${drawing.title}</title>`);
    expect(drawing.description.length).toBeGreaterThan(100);
  }
});
