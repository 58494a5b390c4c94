import type { DecidingEntry } from '../codec/ledger-entry.ts';
import type { ErrorCode } from '../errors.ts';

/** The outcome for a request: the batch that the ledger holds for it, or why there is none. */
export type Decision =
  | {
      readonly kind: 'batch';
      readonly entry: DecidingEntry;
      readonly appendedAtMs: number;
      readonly replayed: boolean;
    }
  | Refused
  /**
   * Another partition decides; the request is unknown here. `wasAnswered`: so it was when the record was read before.
   */
  | { readonly kind: 'elsewhere'; readonly home: number; readonly wasAnswered: boolean };

/** A request that gets no batch, at least for now. */
export interface Refused {
  readonly kind: 'refused';
  readonly code: ErrorCode;
  readonly message: string;
  /** When a retry may succeed, if that is known. */
  readonly retryAfterMs?: number;
}

/** What is sent for a request. */
export interface Answer {
  readonly decision: Decision;
  /** The equal request before this one has this answer, reply or dead letter, so this one needs none of its own. */
  readonly isRepeated: boolean;
}
