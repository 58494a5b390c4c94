/** A column's title; numbers stand to the right, and so do columns that are marked. */
export interface Column {
  readonly title: string;
  readonly right?: boolean;
}

/** A table for people: a line of titles, then one a row. The last column is not padded. */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[]): string {
  const titles = columns.map(({ title }) => title);
  const widths = titles.map((title, column) =>
    rows.reduce((most, row) => Math.max(most, row[column]?.length ?? 0), title.length),
  );
  const line = (cells: readonly string[]) =>
    columns
      .map(({ right }, column) => {
        const cell = cells[column] ?? '';
        return right === true ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0);
      })
      .join('  ')
      .trimEnd();
  return [titles, ...rows].map((cells) => `${line(cells)}\n`).join('');
}

/** How many of what, for people: 1 member, 2 members. */
export function counted(count: number | bigint, one: string, many = `${one}s`): string {
  return `${count} ${Number(count) === 1 ? one : many}`;
}

/** A time for people; times that no date can show stay numbers. */
export function timeText(milliseconds: number): string {
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? String(milliseconds) : date.toISOString();
}

/** A span for people, in the largest unit that fits: 950 ms, 12.3 s, 4.5 min, 3.2 h, 8.1 d. */
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

/** Controls of C1, which a terminal may obey; what turns text around; what has no width, so that two texts look the same. */
const UNSEEN =
  /[\u0080-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** As JSON writes them, so that JSON stays what it says. Other text is not changed. */
export function visible(text: string): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return text.replace(UNSEEN, (character) => character.split('').map(escaped).join(''));
}

/** What somebody else wrote must not steer a terminal. */
export function printable(text: string): string {
  return visible(text).replace(/[^\x20-\x7e\u00a0-\u{10ffff}]/gu, '\ufffd');
}

const MAX_WORD = 300;
const SHOWN_OF_WORD = 100;

/** A message for people, on lines of its own: without control characters, and with the beginning of endless words only. */
export function message(text: string): string {
  const lines = text.trimEnd().split('\n').map(printable);
  const cut = (word: string) => (word.length > MAX_WORD ? `${word.slice(0, SHOWN_OF_WORD)}…` : word);
  return `${lines.map((line) => line.replace(/\S+/g, cut)).join('\n')}\n`;
}
