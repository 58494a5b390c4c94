import { at, replaced } from '../search.ts';

/** The state of the model of sequence heads. Numbers start at 1, so 0 stands for what is not known. */

export const NONE = -1;

/**
 * `numbers` decide for a key. An `order` is an operator's statement. `again` states what is known once more. A `loss`
 * says that decisions are gone. `others` is a record of something else: it only takes a place.
 */
export const KIND = { numbers: 0, order: 1, again: 2, loss: 3, others: 4 } as const;
type Kind = (typeof KIND)[keyof typeof KIND];

/**
 * What operators decide about a sequence. Each order makes the next edition of it; 0 is one of the version before, NONE
 * is unknown.
 */
export interface Definition {
  readonly edition: number;
  readonly step: number;
  readonly isClosed: boolean;
}

/** A record, in the log or pending in etcd, where it has no place yet. */
export interface Entry extends Definition {
  readonly kind: Kind;
  readonly sequence: number;
  readonly key: number;
  /** The next number before it: that of its writer's copy. */
  readonly first: number;
  /** The next number behind it. */
  readonly next: number;
  /** The highest first sending of all that its writer knew to be decided; of a loss: its horizon. */
  readonly through: number;
  /** The first sending of its own key; NONE without one. */
  readonly sent: number;
  /** The offset for which it was written. */
  readonly at: number;
}

/** What a copy of the log shows of a sequence. Everything in it only grows while the copy is read on. */
export interface Row extends Definition {
  readonly next: number;
  /** Above a number that was skipped, until a loss covers it. */
  readonly gap: number;
}

export interface Copy {
  readonly end: number;
  /** By key: the first of its numbers. */
  readonly numbers: readonly number[];
  readonly rows: readonly Row[];
  /** Unknown keys that were first sent up to here are FORGOTTEN. */
  readonly horizon: number;
  /** The highest first sending of all that it shows. */
  readonly through: number;
}

/** What etcd knows of a sequence: the next number behind its last draft, whoever has appended that. */
export interface Stated extends Definition {
  readonly next: number;
}

/** What etcd holds of a ledger partition. `revision` is that of `pending`; 0: nothing is there. */
export interface Head {
  readonly revision: number;
  readonly pending: readonly Entry[];
  readonly stated: readonly Stated[];
  /** The highest first sending of all that was ever drafted. */
  readonly through: number;
}

/** A swap under way: the head that it writes, if the revision is still the expected one. */
export interface Swap {
  readonly expected: number;
  readonly head: Head;
  /** The order that it carries out. */
  readonly order: number;
}

export interface Worker {
  readonly copy: Copy;
  readonly head: Head;
  /** What it waits for: at most one of the two. */
  readonly swap: Swap | undefined;
  readonly append: readonly Entry[];
  /** A swap of its own had no answer, and none has succeeded since. */
  readonly isUnsure: boolean;
}

/** What was ever decided: by records that counted when they came, also if the log has lost them. */
export interface Truth {
  readonly numbers: readonly number[];
  readonly due: readonly Stated[];
}

export interface State {
  readonly arrived: number;
  /** How often each fault may still occur. */
  readonly foreign: number;
  readonly losses: number;
  readonly wipes: number;
  /** One bit for each order that was carried out. */
  readonly given: number;
  readonly low: number;
  /** Trimmed records stay here: copies from before know them. */
  readonly log: readonly Entry[];
  readonly head: Head;
  readonly saved: Head;
  readonly workers: readonly Worker[];
  /** Appends and swaps that come late, or never. */
  readonly strays: readonly (readonly Entry[])[];
  readonly lates: readonly Swap[];
  /** One bit for each key that was refused for good. */
  readonly refused: number;
  readonly truth: Truth;
}

export const BLANK: Entry = {
  kind: KIND.others,
  sequence: NONE,
  key: NONE,
  first: 0,
  next: 0,
  edition: 0,
  step: 1,
  isClosed: false,
  through: NONE,
  sent: NONE,
  at: NONE,
};

export const UNSTATED: Stated = { next: 0, edition: 0, step: 1, isClosed: false };
/** Nothing was read yet. Numbers alone leave the edition so: they don't show the definition. */
export const NO_ROW: Row = { ...UNSTATED, edition: NONE, gap: 0 };

export function definitionOf({ edition, step, isClosed }: Definition): Definition {
  return { edition, step, isClosed };
}

/** The newer definition of log and head. */
export function newerOf(row: Row, stated: Stated): Definition {
  return definitionOf(stated.next > 0 && stated.edition > row.edition ? stated : row);
}

export function withWorker(state: State, w: number, change: Partial<Worker>): State {
  return { ...state, workers: replaced(state.workers, w, { ...at(state.workers, w), ...change }) };
}
