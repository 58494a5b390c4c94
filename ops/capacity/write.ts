import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../dev/paths.ts';
import { type CapacityData, readData } from './data.ts';
import { goalsOf } from './goals.ts';
import { type Parts, pageOf, partsOf } from './page.ts';
import { plotsOf, svgOf } from './plots.ts';

/** The pages with figures of the kept run, and what makes their parts. */
export const PAGES: readonly { readonly file: string; readonly partsOf: (data: CapacityData) => Parts }[] = [
  { file: 'docs/operations/capacity.md', partsOf },
  { file: 'docs/internals/decisions/what-a-request-costs.md', partsOf: goalsOf },
];
/** Where the plots are. */
export const PICTURES = join(ROOT, 'docs/pictures');

/** Writes the plots and the generated parts of the pages from the kept figures. */
export async function writeCapacity(): Promise<void> {
  const data = readData();
  for (const plot of plotsOf(data)) writeFileSync(join(PICTURES, `${plot.name}.svg`), await svgOf(plot));
  for (const { file, partsOf } of PAGES) {
    const path = join(ROOT, file);
    writeFileSync(path, pageOf(readFileSync(path, 'utf8'), partsOf(data)));
  }
}
