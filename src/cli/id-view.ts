import { fieldsOf, type IdView } from '../codec/id-view.ts';
import { formatHex, type Layout } from '../core/layout.ts';
import { table, timeText } from './output.ts';

const COLUMNS = ['>value', '>hex', '>time', '>datacenter', '>worker', '>sequence'];
const FORM_COLUMNS = [
  { key: 'value_form', title: 'as' },
  { key: 'form', title: 'read as' },
] as const;

/** A table with one line per ID. The columns of forms appear when any ID has one. */
export function idTable(views: readonly (IdView & { readonly form?: string })[]): string {
  const extra = FORM_COLUMNS.filter(({ key }) => views.some((view) => view[key] !== undefined));
  const rows = views.map((view) => [...cells(view), ...extra.map(({ key }) => view[key] ?? '')]);
  return table([...COLUMNS, ...extra.map(({ title }) => title)], rows);
}

function cells({ value_string: value, value_hex: hex, breakdown }: IdView): string[] {
  if (breakdown === null) return [value, hex, '?', '?', '?', '?'];
  const { timestamp_ms: ms, datacenter_id: datacenter, worker_id: worker, sequence_number: sequence } = breakdown;
  return [value, hex, timeText(ms), String(datacenter), String(worker), String(sequence)];
}

/**
 * The 64 bits of an ID, each field drawn with its position and value:
 *
 *     0x00c48e86f8092000 = 55325805773398016
 *     0 00000001100010010001110100001101111100000 00100 10010 000000000000
 *     │ │                                         │     │     └─ bits 11..0   sequence    0
 *     │ │                                         │     └─────── bits 16..12  worker      18
 */
export function drawBits(layout: Layout, id: bigint): string {
  const fields = fieldsOf(layout, id);
  const starts = fields.map((_, i) => fields.slice(0, i).reduce((sum, { bits }) => sum + bits.length + 1, 0));
  const armEnd = (starts.at(-1) ?? 0) + 3;
  const places = fields.map(({ highest, bits }) => {
    return bits.length === 1 ? `bit ${highest}` : `bits ${highest}..${highest - bits.length + 1}`;
  });
  const longest = (texts: readonly string[]) => Math.max(...texts.map((text) => text.length));
  const [placeWidth, labelWidth] = [longest(places), longest(fields.map(({ label }) => label))];
  const legend = fields.map((field, i) => {
    const stem = starts.slice(0, i).reduce((line, at) => `${line.padEnd(at)}│`, '');
    const arm = `${stem.padEnd(starts[i] ?? 0)}└`.padEnd(armEnd, '─');
    const text = `${(places[i] ?? '').padEnd(placeWidth)}  ${field.label.padEnd(labelWidth)}  ${field.value}`;
    return `${arm} ${text}${field.startMs === undefined ? '' : ` = ${timeText(field.startMs)}`}`;
  });
  const head = [`0x${formatHex(id)} = ${id}`, fields.map(({ bits }) => bits).join(' ')];
  return [...head, ...legend.reverse()].map((line) => `${line}\n`).join('');
}
