/** Names and promises of the topics. */
export interface TopicSettings {
  readonly requests: string;
  readonly ledger: string;
  readonly deadLetters: string;
  readonly witness: string;
  /** Replies go to topics whose names start with this. */
  readonly replyPrefix: string;
  /** Partitions of the request topic, and so of the ledger. Frozen once the topics exist. */
  readonly requestPartitions: number;
  readonly replicationFactor: number;
  /** -1: for ever. */
  readonly requestRetentionMs: number;
  /** -1: for ever. */
  readonly ledgerRetentionMs: number;
  /** Go on, with a warning, though a single broker's loss can lose decisions. */
  readonly allowWeakLedger: boolean;
}

/** A segment of the request topic stays at most this long open, so its records may outlive the retention by this. */
export const REQUEST_SEGMENT_MS = 3_600_000;

/** What the ledger must outlive the requests by, beyond the request topic's own segment time. */
export const LEDGER_MARGIN_MS = 3_600_000;
