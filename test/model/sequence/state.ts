import { at, replaced } from '../search.ts';
import type { World } from './rule.ts';

/** The state of the model of named sequences. */

export const NONE = -1;
/** What nothing that is left in the log shows. */
export const UNKNOWN = -2;
/** No largest number. */
const NO_MAX = 90;

export const KIND = { ids: 0, numbers: 1, renewal: 2, marker: 3, statement: 4, order: 5 } as const;
export type Kind = (typeof KIND)[keyof typeof KIND];

/** A record of the ledger. An order is an operator's statement; readers treat it like a worker's. */
export interface Entry {
  readonly kind: Kind;
  /** The request that it decides, or whose decision it repeats. */
  readonly request: number;
  readonly sequence: number;
  /** The offset for which it was written. */
  readonly at: number;
  /** The end of its writer's index at look-up, and the highest request offset in that. */
  readonly end: number;
  readonly through: number;
  /** Its first number, or the next one after a statement. */
  readonly first: number;
  readonly step: number;
  readonly max: number;
  readonly isClosed: boolean;
  /** Whether the append time lies in the window. */
  readonly isTimely: boolean;
  /** 'chained': the last record of the sequence that counts, as its writer knew it. */
  readonly after: number;
}

/** A reader's knowledge of a sequence. */
export interface Row {
  /** UNKNOWN: there is no row. */
  readonly next: number;
  readonly step: number;
  readonly max: number;
  readonly isClosed: boolean;
  /** 'chained': the last record that counts, and from where on that is known. */
  readonly last: number;
  readonly from: number;
}

/** A worker's index: it knows the log from `origin` to `end`. */
export interface Index {
  readonly origin: number;
  readonly end: number;
  readonly horizon: number;
  readonly through: number;
  /** One bit for each offset under which a key is found. */
  readonly indexed: number;
  readonly rows: readonly Row[];
  /** 'total': the first number of each record, NONE without. */
  readonly totals: readonly number[];
}

export interface Worker {
  readonly index: Index;
  /** An index that it saved earlier. */
  readonly saved: Index | undefined;
  /** A marker is due before anything else. */
  readonly isMarkerDue: boolean;
  /** The append in flight; empty for none. */
  readonly append: readonly Entry[];
}

/** The decision for a key: its request and first number, or the offset of its IDs. */
export interface Decision {
  readonly request: number;
  readonly first: number;
}

/** What a reader of the whole log knows. */
export interface Truth {
  readonly rows: readonly Row[];
  /** By key. */
  readonly decisions: readonly Decision[];
}

export interface State {
  readonly arrived: number;
  readonly low: number;
  /** Trimmed records stay here, for the indexes that know them. */
  readonly entries: readonly Entry[];
  readonly workers: readonly Worker[];
  readonly strays: readonly (readonly Entry[])[];
  /** One bit for each order that was given. */
  readonly given: number;
  readonly truth: Truth;
  /** By key: whether it was refused; only where requests are refused. */
  readonly refused: readonly number[];
}

export const UNDECIDED: Decision = { request: NONE, first: NONE };

export const NO_ROW: Row = {
  next: UNKNOWN,
  step: 1,
  max: NO_MAX,
  isClosed: false,
  last: UNKNOWN,
  from: UNKNOWN,
};

export const BLANK: Entry = {
  kind: KIND.marker,
  request: NONE,
  sequence: NONE,
  at: NONE,
  end: 0,
  through: NONE,
  first: NONE,
  step: 1,
  max: NO_MAX,
  isClosed: false,
  isTimely: true,
  after: NONE,
};

/** The key of a request, as a small number: in its sequence, or among the IDs. */
export function keyOf({ keys }: World, request: number): number {
  return at(keys, request);
}

/** Whether an index of these offsets has an entry of a record's key before the record. */
export function isKnownKey(
  world: World,
  { origin, indexed }: Index,
  entries: readonly Entry[],
  offset: number,
): boolean {
  const key = keyOf(world, at(entries, offset).request);
  for (let o = origin; o < offset; o++) {
    if ((indexed >> o) & 1 && keyOf(world, at(entries, o).request) === key) return true;
  }
  return false;
}

export function withRow(index: Index, sequence: number, row: Row): Index {
  return { ...index, rows: replaced(index.rows, sequence, row) };
}

export function withWorker(state: State, w: number, change: Partial<Worker>): State {
  return { ...state, workers: replaced(state.workers, w, { ...at(state.workers, w), ...change }) };
}
