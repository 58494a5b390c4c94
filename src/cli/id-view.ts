import type { IdView } from '../codec/id-view.ts';
import { table, timeText } from './table.ts';

const COLUMNS = ['value', 'hex', 'time', 'datacenter', 'worker', 'sequence'].map((title) => ({ title, right: true }));
const FORM_COLUMNS = [
  { key: 'value_form', title: 'as' },
  { key: 'form', title: 'read as' },
] as const;

/** A table with one line per ID. The columns of forms appear when any ID has one. */
export function idTable(views: readonly (IdView & { readonly form?: string })[]): string {
  const extra = FORM_COLUMNS.filter(({ key }) => views.some((view) => view[key] !== undefined));
  const rows = views.map((view) => [...cells(view), ...extra.map(({ key }) => view[key] ?? '')]);
  return table([...COLUMNS, ...extra.map(({ title }) => ({ title }))], rows);
}

function cells({ value_string: value, value_hex: hex, breakdown }: IdView): string[] {
  if (breakdown === null) return [value, hex, '?', '?', '?', '?'];
  const { timestamp_ms: ms, datacenter_id: datacenter, worker_id: worker, sequence_number: sequence } = breakdown;
  return [value, hex, timeText(ms), String(datacenter), String(worker), String(sequence)];
}
