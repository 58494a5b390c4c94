import { decompose, formatHex, type Layout, tickStartMs } from '../core/layout.ts';

/** An ID as JSON output. IDs are strings, since many JSON parsers round numbers above 2^53. */
export interface IdView {
  readonly value_string: string;
  /** Only in layouts whose IDs fit exactly into a JSON number. */
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
