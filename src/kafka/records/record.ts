/** Headers by name, without a prototype; a name that comes more than once has a list. */
export type HeaderValue = Buffer | null;
export type Headers = Readonly<Record<string, HeaderValue | readonly HeaderValue[]>>;

/** A record as it was read, nothing of it trusted yet. */
export interface FetchedRecord {
  readonly offset: number;
  /** The broker's clock where the topic has LogAppendTime, else the sender's, or NaN where that is no safe number. */
  readonly timestampMs: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: Headers;
}

/** A record to be written. */
export interface NewRecord {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  /** Text is written as UTF-8; undefined as an empty value. */
  readonly headers?: Readonly<Record<string, Buffer | string | null | undefined | readonly (Buffer | string | null)[]>>;
  /** Milliseconds since 1970; by default the batch's own time. */
  readonly timestampMs?: number;
}
