import type { NumberRun } from '../../core/sequence-row.ts';

/** Where something was found. */
export interface BatchLocation {
  readonly source: 'ledger' | 'reply' | 'request' | 'letter' | 'witness';
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  /** What names the request: its request ID, or else its correlation ID. */
  readonly requestId: Buffer;
}

/** One partition of one topic. */
export function logOf({ topic, partition }: Pick<BatchLocation, 'topic' | 'partition'>): string {
  return `${topic}/${partition}`;
}

/** What an audit looks for, in the words of its help. */
export const FINDINGS = {
  UNANSWERED: 'a request without decision, reply or dead letter, older than the grace time',
  MISSING_REPLY: 'a request that was answered or decided, without reply or dead letter',
  MISMATCH: 'an entry or a reply with another count, topic, partition or hash than its request',
  WRONG_REFUSAL: 'a request that got an error though its decision stood',
  OVERLAP: 'an ID in two batches',
  SPLIT: 'a request with batches in several partitions, or in two ledgers, or with numbers twice',
  OUTSIDE_EVIDENCE: "IDs that don't match the worker, datacenter, layout or time of their batch",
  ABOVE_CEILING: 'IDs that are not below the ceiling that was witnessed for their term',
  FENCE: 'IDs of a worker ID that rise while its fence falls',
  GAP: "numbers of a sequence that don't continue those before",
  FORMAT: 'numbers that are not what the sequence was at that place', // its format, step or end, or it was closed
  VOID: 'a reply with numbers of a record that does not count',
  DIVERGENT: 'a reply with another batch, or other numbers, than the ledger decided',
  UNDECIDED: 'a reply without a decision, though the ledger reaches back that far',
  MISDIRECTED: 'a reply on another topic than the request named',
  UNREADABLE: 'a record that is not a ledger entry, or not a reply',
} as const;
export type FindingCode = keyof typeof FINDINGS;

export interface Finding {
  readonly code: FindingCode;
  readonly message: string;
  readonly locations: readonly BatchLocation[];
}

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
  /** Where the reply goes; only an entry of the ledger says it. */
  readonly replyTopic?: string | undefined;
  /**
   * An earlier decision may have been deleted with the beginning of the ledger, so that this entry may not be the
   * first.
   */
  readonly doubtful?: boolean;
  /** The request for which an entry was written. */
  readonly of?: DecidedRequest | undefined;
  /** The reply was written since a replay began. */
  readonly again?: boolean;
  /** The correlation ID of a reply. */
  readonly correlationId?: Buffer | undefined;
}

/** What an entry says of its request. */
export interface DecidedRequest {
  /**
   * The offset of the request, in the request partition that has the number of the entry's; -1 where the ledger was
   * copied to other offsets.
   */
  readonly offset: number;
  /** From requestHash. */
  readonly hash: Buffer;
  /** The entry repeats an older one, so it does not show when its request was decided. */
  readonly isRenewal: boolean;
}

/**
 * Numbers of a sequence in a ledger record that counts or in a reply, or an error in a reply; without the numbers
 * themselves.
 */
export interface FoundAnswer extends BatchLocation {
  readonly kind: 'answer';
  readonly timeMs: number;
  readonly sequence?: string | undefined;
  /** How many numbers. */
  readonly count?: number | undefined;
  /** The code of an error. */
  readonly code?: string | undefined;
  /** Where the reply goes, and the request for which it was written: an entry of the ledger says both. */
  readonly replyTopic?: string | undefined;
  readonly of?: DecidedRequest | undefined;
  /** The correlation ID of a reply. */
  readonly correlationId?: Buffer | undefined;
}

/** A record of the request topic. */
export interface FoundRequest extends BatchLocation {
  readonly kind: 'request';
  /** When it was sent, by the broker's clock. */
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
}

/** A dead letter of a request. Place and time are those of the request. */
export interface FoundDeath extends BatchLocation {
  readonly kind: 'death';
  readonly timeMs: number;
  readonly correlationId: Buffer;
  /** The count of the request. */
  readonly count: number;
}

export type Found = FoundBatch | FoundAnswer | FoundRequest | FoundDeath;

/** Equal numbers are those of one group, and of one address in it. */
export type Grouped = Found & { readonly group: number; readonly address: number };

/**
 * What a record with numbers is: a reply (`told`), one that repeats what was decided before (`again`), a record of the
 * ledger that decides, its renewal, one that lies elsewhere than it was written for and so decides nothing (`void`), or
 * a renewal of what the beginning of the log may have had, which may not be the first (`doubtful`).
 */
export const NUMBER_KINDS = ['told', 'again', 'decided', 'renewed', 'void', 'doubtful'] as const;
type NumbersKind = (typeof NUMBER_KINDS)[number];

/** Numbers of one correlation ID, as they were found in the ledger or in a reply. */
export interface FoundNumbers extends BatchLocation, NumberRun {
  readonly sequence: string;
  readonly format: string;
  /** The record's timestamp. */
  readonly timeMs: number;
  readonly kind: NumbersKind;
  /** Where the index of an entry's writer ended. */
  readonly end: number;
}

/** One run of IDs of a batch; `unit` identifies the batch. */
export interface IdRun extends BatchLocation {
  readonly first: bigint;
  readonly last: bigint;
  readonly step: bigint;
  readonly unit: number;
  /** The term that its batch names. */
  readonly term?: number | undefined;
}
