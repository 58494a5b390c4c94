import { decompose, formatHex, type Layout, tickStartMs } from '../core/layout.ts';

/** An ID as a reader or a script sees it. IDs are strings, since JSON numbers lose digits above 2^53. */
export interface IdView {
  readonly value_string: string;
  readonly value_hex: string;
  readonly breakdown: IdBreakdown | null;
}

interface IdBreakdown {
  readonly timestamp_ms: number;
  readonly datacenter_id: number;
  readonly worker_id: number;
  readonly sequence_number: number;
}

/** An ID from [0, 2^64) with its parts; without a layout the parts can't be told. */
export function viewId(layout: Layout | undefined, id: bigint): IdView {
  return { value_string: String(id), value_hex: formatHex(id), breakdown: layout ? breakDown(layout, id) : null };
}

function breakDown(layout: Layout, id: bigint): IdBreakdown {
  const { ticks, datacenter, worker, sequence } = decompose(layout, id);
  return {
    timestamp_ms: tickStartMs(layout, ticks),
    datacenter_id: datacenter,
    worker_id: worker,
    sequence_number: sequence,
  };
}

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
