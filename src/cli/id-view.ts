import type { IdView } from '../codec/id-view.ts';

const TITLES = ['value', 'hex', 'time', 'datacenter', 'worker', 'sequence'];

/** A table with one line for each ID; numbers stand to the right. */
export function idTable(views: readonly IdView[]): string {
  const rows = views.map(({ value_string: value, value_hex: hex, breakdown }) => {
    if (breakdown === null) return [value, hex, '?', '?', '?', '?'];
    const { timestamp_ms: ms, datacenter_id: datacenter, worker_id: worker, sequence_number: sequence } = breakdown;
    return [value, hex, timeText(ms), String(datacenter), String(worker), String(sequence)];
  });
  const widths = TITLES.map((title, column) =>
    rows.reduce((most, row) => Math.max(most, row[column]?.length ?? 0), title.length),
  );
  const line = (cells: readonly string[]) => cells.map((cell, column) => cell.padStart(widths[column] ?? 0)).join('  ');
  return [TITLES, ...rows].map((cells) => `${line(cells)}\n`).join('');
}

/** Times that no date can show stay numbers. */
function timeText(milliseconds: number): string {
  const date = new Date(milliseconds);
  return Number.isNaN(date.getTime()) ? String(milliseconds) : date.toISOString();
}
