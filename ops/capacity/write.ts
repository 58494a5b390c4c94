import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../dev/paths.ts';
import { readData } from './data.ts';
import { pageOf } from './page.ts';
import { plotsOf, svgOf } from './plots.ts';

export const PAGE_FILE = join(ROOT, 'docs/operations/capacity.md');
/** Where the plots are. */
export const PICTURES = join(ROOT, 'docs/pictures');

/** Writes the plots and the generated parts of the page from the kept figures. */
export async function writeCapacity(): Promise<void> {
  const data = readData();
  for (const plot of plotsOf(data)) writeFileSync(join(PICTURES, `${plot.name}.svg`), await svgOf(plot));
  writeFileSync(PAGE_FILE, pageOf(readFileSync(PAGE_FILE, 'utf8'), data));
}
