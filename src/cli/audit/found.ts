import type { BatchLocation } from './location.ts';

/** A batch as it was found in a ledger entry or in a reply. */
export interface FoundBatch extends BatchLocation {
  readonly kind?: undefined;
  /** From batchDigest: equal for equal batches. */
  readonly digest: Buffer;
  /** From packRanges, merged. */
  readonly ranges: Buffer;
  /** The record's timestamp. */
  readonly timeMs: number;
  /** The term that its evidence names, from Terms; undefined if its layout is unknown. */
  readonly term?: number | undefined;
  /** Ledger: where the reply goes. */
  readonly replyTopic?: string | undefined;
  /** Ledger: an earlier decision may have been deleted with the beginning of the log, so this entry may not be the first. */
  readonly doubtful?: boolean;
  /** Ledger: the request for which it was written. */
  readonly of?: DecidedRequest | undefined;
  /** Reply: written since a replay began. */
  readonly again?: boolean;
  /** Reply: the correlation ID. */
  readonly correlationId?: Buffer | undefined;
}

/** What an entry says of its request. */
export interface DecidedRequest {
  /** Its offset in the request partition of the entry's number. */
  readonly offset: number;
  /** From requestHash. */
  readonly hash: Buffer;
  /** The entry repeats an older one, so it does not show when its request was decided. */
  readonly isRenewal: boolean;
}

/** Numbers of a sequence in a ledger record that counts or in a reply, or an error in a reply; without the numbers themselves. */
export interface FoundAnswer extends BatchLocation {
  readonly kind: 'answer';
  readonly timeMs: number;
  readonly sequence?: string | undefined;
  /** How many numbers. */
  readonly count?: number | undefined;
  /** Of an error. */
  readonly code?: string | undefined;
  /** Ledger: where the reply goes, and the request for which it was written. */
  readonly replyTopic?: string | undefined;
  readonly of?: DecidedRequest | undefined;
  /** Reply: the correlation ID. */
  readonly correlationId?: Buffer | undefined;
}

/** A record of the request topic. */
export interface FoundRequest extends BatchLocation {
  readonly kind: 'request';
  /** By the broker's clock. */
  readonly timeMs: number;
  /** It is no valid request, for this reason, and has none of the fields below: only a dead letter answers it. */
  readonly rejected?: string | undefined;
  readonly correlationId: Buffer;
  readonly replyTopic: string;
  readonly replyPartition?: number | undefined;
  readonly count: number;
  /** From requestHash. */
  readonly hash: Buffer;
  readonly sequence?: string | undefined;
  /** The partition that decides it. */
  readonly home: number;
  /** Where the request was first, if this is a copy that was forwarded. */
  readonly origin?: { readonly partition: number; readonly offset: number } | undefined;
  /** Its headers say that it was first sent earlier: a worker may have refused it as too old. */
  readonly isResent: boolean;
}

/** A dead letter for one record of the request topic. */
export interface FoundLetter {
  readonly partition: number;
  readonly offset: number;
  /** The record's own time; undefined if the letter does not say it. */
  readonly recordMs: number | undefined;
  readonly code: string;
}

/** A dead letter of a request. Place and time are those of the request. */
export interface FoundDeath extends BatchLocation {
  readonly kind: 'death';
  readonly timeMs: number;
  readonly correlationId: Buffer;
  /** The count of the request. */
  readonly count: number;
  readonly code: string;
}

export type Found = FoundBatch | FoundAnswer | FoundRequest | FoundDeath;

/** Equal numbers are those of one group, and of one address in it. */
export type Grouped = Found & { readonly group: number; readonly address: number };
