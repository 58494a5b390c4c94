import { decompose, formatHex, type Layout, tickStartMs } from '../core/layout.ts';

/** An ID as a reader or a script sees it. IDs are strings, since many readers of JSON round numbers above 2^53. */
export interface IdView {
  readonly value_string: string;
  /** Only in layouts whose IDs a JSON number holds exactly, wherever it is read. */
  readonly value_number?: number;
  readonly value_hex: string;
  /** The ID in the form that was asked for, if any was. */
  readonly value_form?: string;
  readonly breakdown: IdBreakdown | null;
}

interface IdBreakdown {
  readonly timestamp_ms: number;
  readonly datacenter_id: number;
  readonly worker_id: number;
  readonly sequence_number: number;
}

/**
 * An ID from [0, 2^64) with its parts; without a layout there are no parts. `write` writes it in a form besides.
 * Throws RangeError for an ID that the layout can't make, and what `write` throws.
 */
export function viewId(layout: Layout | undefined, id: bigint, write?: (id: bigint) => string): IdView {
  return {
    value_string: String(id),
    ...(layout?.fitsNumber === true ? { value_number: Number(id) } : {}),
    value_hex: formatHex(id),
    ...(write && { value_form: write(id) }),
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
