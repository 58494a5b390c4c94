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

/** A time for people; times that no date can show stay numbers. */
export function timeText(milliseconds: number): string {
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? String(milliseconds) : date.toISOString();
}
