import { decompose, formatHex, type Layout, tickStartMs } from '../core/layout.ts';

/** An ID as a reader or a script sees it. IDs are strings, since many readers of JSON round numbers above 2^53. */
export interface IdView {
  readonly value_string: string;
  /** Only in layouts whose IDs a JSON number holds exactly, wherever it is read. */
  readonly value_number?: number;
  readonly value_hex: string;
  readonly breakdown: IdBreakdown | null;
}

interface IdBreakdown {
  readonly timestamp_ms: number;
  readonly datacenter_id: number;
  readonly worker_id: number;
  readonly sequence_number: number;
}

/**
 * An ID from [0, 2^64) with its parts; without a layout the parts can't be told.
 * Throws RangeError for an ID that the layout can't make.
 */
export function viewId(layout: Layout | undefined, id: bigint): IdView {
  return {
    value_string: String(id),
    ...(layout?.fitsNumber === true ? { value_number: Number(id) } : {}),
    value_hex: formatHex(id),
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
