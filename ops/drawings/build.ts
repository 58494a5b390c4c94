/** Writes the drawings of the pages to docs/drawings: `npm run docs:drawings`. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../dev/paths.ts';
import { DRAWINGS } from './drawings.ts';
import { svgOf } from './svg.ts';

const OUT = join(ROOT, 'docs/drawings');

mkdirSync(OUT, { recursive: true });
for (const drawing of DRAWINGS) writeFileSync(join(OUT, `${drawing.name}.svg`), svgOf(drawing));
process.stdout.write(`${DRAWINGS.length} drawings are in docs/drawings\n`);
