/** The input of the model of named sequences: the rule, each part of which can be broken, and the bounds of a world. */

/**
 * The rule for named sequences. `RULE` is the one that is to be built; every other value is a mistake or a rejected
 * design.
 */
export interface Rule {
  // Which records count
  /**
   * Numbers count at the offset they were written for ('placed'). Rejected: if they are the first of their key,
   * wherever; if they lie in place or continue the numbers ('slot'); if they name the last record that counts
   * ('chained'); or they count if they are the first of their key, and are then the total of the winners before,
   * whatever the record says ('total').
   */
  readonly counting: 'placed' | 'first of its key' | 'slot' | 'chained' | 'total';
  /** 'chained' and 'total': what a restored index can't judge is FORGOTTEN. */
  readonly honoursDoubt: boolean;
  /** Statements count as numbers do, or wherever they lie: those renewed by workers, or those of operators. */
  readonly statements: 'placed' | 'renewed anywhere' | 'operators anywhere';
  /** Whether the records of an append have one time, against which windows are checked. */
  readonly isTimedByAppend: boolean;

  // What a reader makes of a record
  /** A void record is not indexed. */
  readonly leavesOutVoid: boolean;
  /** What shows the next number to a reader that does not know it: statements alone, or numbers or void records too. */
  readonly rowFrom: 'statements' | 'numbers' | 'void';
  /** A sequence without a row is refused; or starts at 1; or its requests wait for a row. */
  readonly withoutRow: 'refused' | 'starts at 1' | 'waits';
  /** A renewal repeats a decision and changes nothing; or raises the next number; or takes new numbers. */
  readonly renewals: 'repeat' | 'raise' | 'take';
  /** Rows are saved in the transaction that moves the end. */
  readonly savesRowWithEnd: boolean;

  // Look-up and draft
  /** Keys, end and row belong to one moment; or the place is the log's end; or end and row are read after the keys. */
  readonly lookUp: 'one step' | 'place from the broker' | 'end and row later';
  /** The key has the sequence's name in it. */
  readonly hasNameInKey: boolean;
  /** An entry that the index has and the log still holds is the decision; or the checks for IDs are made as well. */
  readonly decides: 'by itself' | 'as for IDs';
  /** A key is drafted once in an append. */
  readonly draftsKeyOnce: boolean;
  readonly refusesForgotten: boolean;
  /** Nothing is decided before a marker has shown the horizon. */
  readonly marksBeforeDeciding: boolean;
  /** The place counts all records before it in the append, or only numbers. */
  readonly placesCount: 'all' | 'numbers';
  /** `first` adds the counts before it in the append: of its sequence, of all sequences, or none. */
  readonly firstAdds: 'own' | 'all' | 'none';
  readonly heedsClosed: boolean;
  readonly heedsMax: boolean;
  /** A refused request or one in conflict takes no number. */
  readonly refusalTakes: boolean;
  readonly conflictTakes: boolean;
  /** The row moves when an append is settled, not when it is sent. */
  readonly waitsToCount: boolean;

  // Settle
  /** A reply comes from the log as it was read; or from what was sent: once it was answered, or even if it was not. */
  readonly repliesFrom: 'log' | 'answered append' | 'append';
  /** A writer applies its own records as a reader would; or as if they counted. */
  readonly ownMayBeVoid: boolean;
  /** A void draft is looked up and drafted again; or sent again as it was; or left. */
  readonly afterVoid: 'looks up again' | 'sends again' | 'leaves';
  /** After an unanswered append a marker is due before anything else. */
  readonly marksAfterSilence: boolean;

  // Operators
  /** An operator's statement has `end` 0, and so shows nothing of requests. */
  readonly operatorShowsNothing: boolean;
  /** An operator's statement is not below the next number that the log shows. */
  readonly operatorReads: boolean;
}

/** The rule that is to be built. */
export const RULE: Rule = {
  counting: 'placed',
  honoursDoubt: true,
  statements: 'placed',
  isTimedByAppend: true,
  leavesOutVoid: true,
  rowFrom: 'statements',
  withoutRow: 'refused',
  renewals: 'repeat',
  savesRowWithEnd: true,
  lookUp: 'one step',
  hasNameInKey: true,
  decides: 'by itself',
  draftsKeyOnce: true,
  refusesForgotten: true,
  marksBeforeDeciding: true,
  placesCount: 'all',
  firstAdds: 'own',
  heedsClosed: true,
  heedsMax: true,
  refusalTakes: false,
  conflictTakes: false,
  waitsToCount: true,
  repliesFrom: 'log',
  ownMayBeVoid: true,
  afterVoid: 'looks up again',
  marksAfterSilence: true,
  operatorShowsNothing: true,
  operatorReads: true,
};

/** A request; its offset is its place in the list. */
export interface Request {
  /** NONE: a request for IDs. */
  readonly sequence: number;
  readonly correlationId: number;
  readonly count: number;
  /** A resend: its age counts, not its offset. */
  readonly isLater: boolean;
}

/** What an operator may do, once each. */
export type Order = 'restart' | 'step 2' | 'max' | 'close' | 'create again';

/** The bounds of the exploration. */
export interface World {
  readonly requests: readonly Request[];
  /** The key of each request: the first request that has the same one. */
  readonly keys: readonly number[];
  readonly sequences: number;
  readonly workers: number;
  /** Records of the ledger, with the first statement of each sequence. */
  readonly entries: number;
  /** Appends under way after their writers gave up, or copies of those that arrived. */
  readonly strays: number;
  /** The requests arrive one by one; this matters only to the `through` of a marker. */
  readonly isGradual: boolean;
  /** Appends of two requests. */
  readonly hasPairs: boolean;
  /** The ledger loses its head, record by record, at any time. */
  readonly isTrimmed: boolean;
  /** Workers lose their indexes at any time. */
  readonly losesIndexes: boolean;
  /** Workers start with an index that they saved earlier. */
  readonly hasOlder: boolean;
  /** Workers write markers, and statements of what they know, whenever they like. */
  readonly isStated: boolean;
  readonly isRenewed: boolean;
  readonly orders: readonly Order[];
  /** Requests may be refused from memory, as EXPIRED. One owner. */
  readonly hasRefusals: boolean;
  /** Numbers count only inside a window of time, and appends may come at any time. */
  readonly hasWindows: boolean;
}
