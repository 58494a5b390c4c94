import { readIdText } from '../codec/id-text.ts';
import { fieldsOf } from '../codec/id-view.ts';
import { formatHex, type Layout } from '../core/layout.ts';

/** A time and what was true from then on; `null` for an open gate. */
export interface GateChange {
  readonly at_ms: number;
  readonly reason: string | null;
}

/** A ledger partition of which a worker keeps a copy. */
export interface PartitionStatus {
  readonly partition: number;
  /** Whether this worker answers its requests; otherwise it stands by. */
  readonly owned: boolean;
  readonly copy: string;
  /** Entries of the log that the copy lacks. */
  readonly copy_lag: number;
  /** Since when all decisions are known, by the brokers' clocks; 0 for always, null while that is unknown. */
  readonly remembers_since_ms: number | null;
  readonly oldest_request_ms: number;
  readonly large_requests: number;
}

/** A worker in the request group. */
export interface MemberStatus {
  readonly name: string;
  readonly host: string;
  /** The partitions that it answers, and those of which it keeps a copy for that. */
  readonly owned: readonly number[];
  readonly standbys: readonly number[];
}

/** A worker ID of the datacenter. */
export interface WorkerIdStatus {
  readonly worker_id: number;
  readonly holder: string | null;
  readonly fence: string | null;
  /** Null if it was never used. */
  readonly ceiling_ahead_ms: number | null;
}

/**
 * What a worker does, and why it does not. All times are wall milliseconds of the worker's clock, unless stated
 * otherwise.
 */
export interface Status {
  readonly now_ms: number;
  readonly started_ms: number;
  readonly version?: string;
  readonly ready: boolean;
  readonly reason: string | null;
  readonly detail: string | null;
  /** What the reason means and what to do, from the runbook. */
  readonly remedy: { readonly meaning: string; readonly remedy: string } | null;
  readonly warning: string | null;
  readonly identity: {
    readonly datacenter_id: number;
    readonly worker_id: number | null;
    readonly fence: string | null;
    /** Null by a clock that is wrong, as the next one. */
    readonly lease_margin_ms: number | null;
    readonly ceiling_ahead_ms: number | null;
  };
  /** The changes of the last hour, oldest first, and what was true before. */
  readonly gate: readonly GateChange[];
  /** The interval in which this clock's lead over each broker's lies. */
  readonly drift: readonly { readonly broker: string; readonly low_ms: number; readonly high_ms: number }[];
  readonly kafka: {
    readonly silent_ms: number;
    readonly unreached: readonly { readonly broker: string; readonly partition: number; readonly silent_ms: number }[];
  };
  readonly partitions: readonly PartitionStatus[];
  /** Since the start. */
  readonly totals: { readonly ids: number; readonly numbers: number; readonly requests: number };
  readonly layout: { readonly name: string; readonly epoch_ms: number; readonly ends_ms: number };
  /**
   * `used`: how much of what a second allows was taken lately, from 0 to 1, of the bound that is closest to its limit.
   */
  readonly quotas: readonly { readonly prefix: string; readonly limits: string; readonly used: number }[];
  /** As etcd had them at `as_of_ms`; null before the first answer. */
  readonly worker_ids: { readonly as_of_ms: number; readonly ids: readonly WorkerIdStatus[] } | null;
  /** Why the worker IDs could not be read lately. */
  readonly worker_ids_error: string | null;
  /** The request group as its coordinator had it at `as_of_ms`; null before the first answer. */
  readonly group: { readonly as_of_ms: number; readonly members: readonly MemberStatus[] } | null;
  /** Why the group could not be read lately. */
  readonly group_error: string | null;
}

/** An ID as the status page draws it. */
export interface DecodedStatus {
  readonly form: string;
  readonly id: string;
  readonly hex: string;
  readonly layout: string;
  readonly fields: readonly {
    readonly label: string;
    readonly bits: string;
    readonly value: string;
    readonly time_ms?: number | undefined;
  }[];
}

/**
 * Decodes an ID in any form that needs no key. Throws IdallocError INVALID_ID or CONFIG_INVALID, RangeError outside the
 * layout.
 */
export function decodeForStatus(layout: Layout, text: string): DecodedStatus {
  const { id, form } = readIdText(text, undefined, { layout, prefix: undefined, keys: undefined });
  const fields = fieldsOf(layout, id).map(({ label, bits, value, startMs }) => {
    return { label, bits, value: String(value), time_ms: startMs };
  });
  return { form, id: String(id), hex: `0x${formatHex(id)}`, layout: layout.name, fields };
}
