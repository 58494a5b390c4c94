/** What is checked: how a worker decides, and in which world. Times are whole ticks. */

/** The rule by which a worker decides, with the places where it can be broken. */
export interface Rule {
  /** A request that is not known and has a T below `since` plus this is FORGOTTEN. */
  readonly margin: number;
  /** After a restore knowledge begins at the append time of the oldest entry, or of the oldest anchored one. */
  readonly since: 'oldest' | 'anchored';
  /**
   * How old, at the least, what is trimmed is taken to be. So what a restore did not find is older than an entry that came
   * after it, by this: knowledge begins no later. Undefined: nothing is taken to be so.
   */
  readonly trimmedAge?: number;
  /** The first entry after a restore tells that; or each one, also after the index let go of something. */
  readonly trimmedAgeTold: 'once' | 'always';
  /** Whether T is asked: of requests that come a second way, of all, or not at all. */
  readonly byTime: 'copies' | 'all' | 'never';
  /** Whether offsets are asked, of records at home without an origin. */
  readonly byOffset: boolean;
  /** T is the origin's, or the append time of the record at hand. */
  readonly timeOf: 'origin' | 'record';
  /** What a resend says of the first record. */
  readonly resend: 'origin' | 'nothing';
  /** A record that lies elsewhere is appended to its home, or decided where it lies. */
  readonly elsewhere: 'forward' | 'decide';
  /** What is assumed of a log that was trimmed when the index is lost. */
  readonly afterLoss: 'unknown' | 'for ever';
  /** When an index lets go of entries, `since` rises to their highest append time. */
  readonly expiryRaises: boolean;
  /** A key whose first entry was written by somebody who had not read up to the origin is FORGOTTEN. */
  readonly losersForgotten: boolean;
}

/** The bounds of what is explored. */
export interface World {
  /** Home partition of each correlation ID. */
  readonly homes: readonly number[];
  /** Last tick. */
  readonly until: number;
  /** How far the brokers' clocks are apart. Any append may meet any broker: leaders move. */
  readonly skew: number;
  /** By how much the origin of a resend may be later than the first append. */
  readonly excess: number;
  /** A correlation ID whose resends claim to be new. */
  readonly madeUp?: number;
  /** How old entries get before they are trimmed; undefined: any entry may be, at any time. */
  readonly retention?: number;
  readonly records: number;
  readonly entries: number;
  /** Appends that nobody waits for any more, and that may still arrive. */
  readonly strays: number;
  readonly workers: number;
}
