import { printable } from '../core/visible.ts';
import type { CliContext } from './context.ts';

/**
 * A text table: a line of titles, then a line per row. The last column is not padded. `>` before a title aligns its
 * column to the right.
 */
export function table(columns: readonly string[], rows: readonly (readonly string[])[]): string {
  const titles = columns.map((column) => column.replace('>', ''));
  const widths = titles.map((title, column) =>
    rows.reduce((most, row) => Math.max(most, row[column]?.length ?? 0), title.length),
  );
  const line = (cells: readonly string[]) =>
    columns
      .map((title, column) => {
        const [cell, width] = [cells[column] ?? '', widths[column] ?? 0];
        return title.startsWith('>') ? cell.padStart(width) : cell.padEnd(width);
      })
      .join('  ')
      .trimEnd();
  return [titles, ...rows].map((cells) => `${line(cells)}\n`).join('');
}

/** A count with its noun: 1 member, 2 members. */
export function counted(count: number | bigint, one: string, many = `${one}s`): string {
  return `${count} ${Number(count) === 1 ? one : many}`;
}

/** A time in ISO 8601; times outside the range of Date stay numbers. */
export function timeText(milliseconds: number): string {
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? String(milliseconds) : date.toISOString();
}

/** A duration in the largest unit that fits: 950 ms, 12.3 s, 4.5 min, 3.2 h, 8.1 d. */
export function spanText(milliseconds: number): string {
  const units = [
    [86_400_000, 'd'],
    [3_600_000, 'h'],
    [60_000, 'min'],
    [1_000, 's'],
  ] as const;
  const unit = units.find(([size]) => Math.abs(milliseconds) >= size);
  return unit === undefined ? `${Math.round(milliseconds)} ms` : `${(milliseconds / unit[0]).toFixed(1)} ${unit[1]}`;
}

const MAX_WORD = 300;
const SHOWN_OF_WORD = 100;

/** A message on its own lines, without control characters; very long words are cut. */
export function message(text: string): string {
  const lines = text.trimEnd().split('\n').map(printable);
  const cut = (word: string) => (word.length > MAX_WORD ? `${word.slice(0, SHOWN_OF_WORD)}…` : word);
  return `${lines.map((line) => line.replace(/\S+/g, cut)).join('\n')}\n`;
}

/**
 * Prose in lines of at most `width` characters. What is indented, such as a table or an example, stays as it is: it is
 * to be read or copied in one line.
 */
export function wrapped(text: string, width: number): string {
  const lines: string[] = [];
  let prose: string[] = [];
  const endProse = () => {
    let line = '';
    for (const word of prose) {
      if (line !== '' && line.length + 1 + word.length > width) {
        lines.push(line);
        line = '';
      }
      line = line === '' ? word : `${line} ${word}`;
    }
    if (line !== '') lines.push(line);
    prose = [];
  };
  for (const line of text.split('\n')) {
    if (/^\S/.test(line)) prose.push(...line.split(' '));
    else {
      endProse();
      lines.push(line);
    }
  }
  endProse();
  return lines.join('\n');
}

/** A result as one line of JSON. What is undefined in it is left out. */
export function jsonLine(view: object): string {
  return `${JSON.stringify(view)}\n`;
}

/** Writes a result to stdout: for programs with `--json`, else as text. */
export function present(
  { out }: Pick<CliContext, 'out'>,
  json: boolean | undefined,
  view: object,
  text: () => string,
): void {
  out(json === true ? jsonLine(view) : text());
}
