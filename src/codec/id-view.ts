import { decompose, type FieldSpec, formatHex, type Layout, tickStartMs } from '../core/layout.ts';
import { ticks } from '../core/units.ts';

/** An ID as JSON output. IDs are strings, since many JSON parsers round numbers above 2^53. */
export interface IdView {
  readonly value_string: string;
  /** The ID as a number, in layouts whose IDs fit exactly into a JSON number. */
  readonly value_number?: number | undefined;
  readonly value_hex: string;
  /** The ID in the requested form, if any. */
  readonly value_form?: string | undefined;
  readonly breakdown: IdBreakdown | null;
}

interface IdBreakdown {
  readonly timestamp_ms: number;
  readonly datacenter_id: number;
  readonly worker_id: number;
  readonly sequence_number: number;
}

/**
 * The view of an ID in [0, 2^64); without a layout it has no breakdown. `write` adds the ID in a form.
 * Throws RangeError for an ID outside the layout, and the errors of `write`.
 */
export function viewId(layout: Layout | undefined, id: bigint, write?: (id: bigint) => string): IdView {
  return {
    value_string: String(id),
    value_number: layout?.fitsNumber === true ? Number(id) : undefined,
    value_hex: formatHex(id),
    value_form: write?.(id),
    breakdown: layout ? breakDown(layout, id) : null,
  };
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

/** A field of an ID: its position, bits and value. */
export interface IdField {
  readonly label: string;
  /** The highest bit, of 63 to 0. */
  readonly highest: number;
  readonly bits: string;
  readonly value: bigint;
  /** The wall time at which the tick begins; only the timestamp has it. */
  readonly startMs?: number;
}

/** All 64 bits of an ID as fields, from the highest; what the layout does not use is a field as well. */
export function fieldsOf(layout: Layout, id: bigint): IdField[] {
  const used = layout.fields.reduce((sum, { bits }) => sum + bits, 0);
  const above: readonly { readonly label: string; readonly bits: number; readonly role?: FieldSpec['role'] }[] = [
    ...(used < 64 ? [{ label: 'sign', bits: 1 }] : []),
    ...(used < 63 ? [{ label: 'unused', bits: 63 - used }] : []),
    ...layout.fields,
  ];
  const text = id.toString(2).padStart(64, '0');
  let from = 0;
  return above.map(({ label, bits, role }) => {
    const run = text.slice(from, from + bits);
    const highest = 63 - from;
    from += bits;
    const field = { label, highest, bits: run, value: BigInt(`0b${run}`) };
    return role === 'timestamp' ? { ...field, startMs: tickStartMs(layout, ticks(Number(field.value))) } : field;
  });
}
