import { type FieldSpec, type Layout, tickStartMs } from '../core/layout.ts';
import { ticks } from '../core/units.ts';

/** A field of an ID: its position, bits and value. */
export interface IdField {
  readonly label: string;
  /** The highest bit, of 63 to 0. */
  readonly highest: number;
  readonly bits: string;
  readonly value: bigint;
  /** Of the timestamp alone: the wall time at which its tick begins. */
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
