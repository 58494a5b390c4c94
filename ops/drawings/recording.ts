import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Drawing, rect, text, WIDTH } from './svg.ts';

/** What `npm start` leaves on a terminal. test/integration/pasted.test.ts compares it with what is printed now. */
export const RECORDED = readFileSync(join(import.meta.dirname, 'npm-start.txt'), 'utf8')
  .trimEnd()
  .split('\n');

const COLUMNS = 102;
/** The picture is faster than what it shows. */
const SPEED = 3;
const LINE_HEIGHT = 16;
const [LEFT, TOP, BOTTOM] = [22, 60, 12];
/** The seconds since the start, before a line. */
const STAMP = /^\[ *([\d.]+) s\] /;
/**
 * Each line appears when it was printed. Where pictures don't move, or a reader wants none that do, all are there at
 * once.
 */
const LOOK =
  '<style>.late text{font-size:11px}@media(prefers-reduced-motion:no-preference){.late{animation:late .1s backwards}}@keyframes late{from{opacity:0}}</style>';

/** A recording of `npm start`. */
export function recording(): Drawing {
  let seconds = 0;
  const rows = RECORDED.flatMap((line) => {
    seconds = Number(STAMP.exec(line)?.[1] ?? seconds);
    return wrapped(line).map((part) => ({ part, delay: (seconds / SPEED).toFixed(1) }));
  });
  const height = TOP + LINE_HEIGHT * rows.length + BOTTOM;
  return {
    name: 'npm-start',
    title: 'npm start at a terminal',
    description:
      'npm start starts etcd and Kafka, creates the topics, starts a worker, and prints the three IDs of a first request; then commands to try next, and the addresses of the HTTP API and the health check.',
    height,
    parts: [
      LOOK,
      rect(8, 8, WIDTH - 16, height - 16),
      ...[0, 1, 2].map((nth) => `<circle class="head" cx="${28 + 18 * nth}" cy="30" r="5"/>`),
      ...rows.map(({ part, delay }, nth) => {
        const shown = text(LEFT, TOP + LINE_HEIGHT * nth, unbroken(part), { at: 'start', look: 'mono' });
        return part === '' ? '' : `<g class="late" style="animation-delay:${delay}s">${shown}</g>`;
      }),
    ].filter((part) => part !== ''),
  };
}

/** A line as a terminal breaks it. */
function wrapped(line: string): string[] {
  const rows = Math.max(1, Math.ceil(line.length / COLUMNS));
  return Array.from({ length: rows }, (_, nth) => line.slice(nth * COLUMNS, (nth + 1) * COLUMNS));
}

/** Of several spaces SVG draws one. */
function unbroken(line: string): string {
  return line.replaceAll(' ', '\u00a0');
}
