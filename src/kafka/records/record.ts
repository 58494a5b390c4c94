/** Headers by name, without a prototype; a repeated name has a list. */
export type HeaderValue = Buffer | null;
export type Headers = Readonly<Record<string, HeaderValue | readonly HeaderValue[]>>;

/** A record as it was read; nothing in it is validated yet. */
export interface FetchedRecord {
  readonly offset: number;
  /** By the broker's clock where the topic has LogAppendTime, else by the sender's; NaN where that is not a safe integer. */
  readonly timestampMs: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: Headers;
  /** Its batch has more than BULK_RECORDS records. */
  readonly isBulk?: true;
}

/**
 * The most records that usual producers put into a batch: librdkafka's default. Java's and kafkajs' make smaller ones. A batch of a
 * few KB can hold a hundred times as many.
 */
export const BULK_RECORDS = 10_000;

/** A record to write. */
export interface NewRecord {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  /** Strings are written as UTF-8, undefined as an empty value. */
  readonly headers?: Readonly<Record<string, Buffer | string | null | undefined | readonly (Buffer | string | null)[]>>;
  /** Milliseconds since 1970; by default the batch's timestamp. */
  readonly timestampMs?: number;
}
