import type { IdView } from '../codec/id-view.ts';
import { table, timeText } from './table.ts';

const COLUMNS = ['value', 'hex', 'time', 'datacenter', 'worker', 'sequence'].map((title) => ({ title, right: true }));

/** A table with one line for each ID; numbers stand to the right. */
export function idTable(views: readonly IdView[]): string {
  const rows = views.map(({ value_string: value, value_hex: hex, breakdown }) => {
    if (breakdown === null) return [value, hex, '?', '?', '?', '?'];
    const { timestamp_ms: ms, datacenter_id: datacenter, worker_id: worker, sequence_number: sequence } = breakdown;
    return [value, hex, timeText(ms), String(datacenter), String(worker), String(sequence)];
  });
  return table(COLUMNS, rows);
}
