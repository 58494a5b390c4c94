/** The input of the model: how a worker decides, and the bounds of its world. Times are whole ticks. */

/** The rule by which a worker decides, with the parts that can be broken. */
export interface Rule {
  /** An unknown request whose T is below `since` plus this is FORGOTTEN. */
  readonly margin: number;
  /** After a restore, knowledge starts at the append time of the oldest entry, or of the oldest anchored one. */
  readonly since: 'oldest' | 'anchored';
  /**
   * The assumed minimum age of trimmed entries: what a restore did not find is older than the next entry by this, so
   * knowledge starts no later. Undefined: no such assumption.
   */
  readonly trimmedAge?: number;
  /**
   * Whether only the first entry after a restore applies that age, or each one, also after the index expired entries.
   */
  readonly trimmedAgeApplies: 'once' | 'always';
  /** Whether T is checked: for forwarded and resent requests, for all, or not at all. */
  readonly byTime: 'copies' | 'all' | 'never';
  /** Whether offsets are checked, for records without an origin in their home partition. */
  readonly byOffset: boolean;
  /** T is that of the origin, or the append time of the record itself. */
  readonly timeOf: 'origin' | 'record';
  /** What a resend carries about the first record. */
  readonly resend: 'origin' | 'nothing';
  /** A record outside its home partition is forwarded, or decided in place. */
  readonly elsewhere: 'forward' | 'decide';
  /** What is assumed about a trimmed log when the index is lost. */
  readonly afterLoss: 'unknown' | 'for ever';
  /** When an index expires entries, `since` rises to their highest append time. */
  readonly expiryRaises: boolean;
  /** A request whose T is after the present by more than the margin is FORGOTTEN. */
  readonly futureForgotten: boolean;
  /** The time of an entry: the broker's, or the later of it and the writer's. */
  readonly entryTime: 'of broker' | 'of both';
  /**
   * After a restore, `since` falls to the time of a later entry of a request whose writer had read all that is before
   * it.
   */
  readonly sinceFalls: 'with anchors' | 'with all' | 'never';
  /** A key is FORGOTTEN if the writer of its first entry had not read up to the origin. */
  readonly losersForgotten: boolean;
}

/** The bounds of the exploration. */
export interface World {
  /** Home partition of each correlation ID. */
  readonly homes: readonly number[];
  /** Last tick. */
  readonly until: number;
  /** The skew of the brokers' clocks. Any append may be stamped by any broker: leaders move. */
  readonly skew: number;
  /** How far off a broker's clock is for one append, ahead if positive, besides the skew; undefined: never. */
  readonly wrongBy?: number;
  /** How much later the origin of a resend may be than the first append. */
  readonly excess: number;
  /** A correlation ID with forged resends, which claim to be new. */
  readonly forged?: number;
  /** The age at which entries are trimmed; undefined: any entry, at any time. */
  readonly retention?: number;
  readonly records: number;
  readonly entries: number;
  /** Abandoned appends that may still arrive. */
  readonly strays: number;
  readonly workers: number;
}
