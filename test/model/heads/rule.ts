import { NONE } from './state.ts';

/** The input of the model of sequence heads: the rule, each part of which can be broken, and the bounds of a world. */

/** "The swap decides, the log shows." `RULE` is the one that is to be built; every other value is a mistake. */
export interface Rule {
  // What etcd does
  /** Numbers are swapped into the head before they are appended; or after that, before the reply; or never. */
  readonly swaps: 'before' | 'after' | 'never';
  /** Orders are swapped in as well; or they are appended at once, as before heads. */
  readonly swapsOrders: boolean;
  /** A swap compares the revision of what it replaces. */
  readonly compares: boolean;
  /** A swap leaves its draft pending. */
  readonly keepsPending: boolean;
  /** A refused swap reads the head again; or it is sent again with the new revision. */
  readonly readsAfterRefusal: boolean;
  /** What a swap without an answer is taken for. */
  readonly silence: 'unknown' | 'success';

  // (a) what the log has lost
  /**
   * The first number that was pending is compared with the copy; or the number behind the draft; or the copy is
   * believed.
   */
  readonly compareWith: 'first pending' | 'next' | 'nothing';
  /** A head that is behind the log is swapped up before anything is drafted. */
  readonly repairs: boolean;
  /** A loss states the number from which pending goes on; or the one behind it. */
  readonly statesLoss: 'first pending' | 'next' | 'never';
  /** What the horizon of a loss takes into account. */
  readonly horizonFrom: 'end and head' | 'end' | 'head' | 'nothing';
  /** How much the end of the request topic may be behind, as a deposed leader tells it. */
  readonly endLag: number;
  /** Numbers that jump show that the log lost something. */
  readonly seesJumps: boolean;
  /** A loss ends a gap only if it states a number at or above it. */
  readonly coversGap: boolean;
  /** A row that begins in the middle forgets what was decided before; or only if no order begins it; or never. */
  readonly beginsWithHorizon: 'always' | 'not in orders' | 'never';

  // (b) what is pending
  /** Pending records keep their numbers; or get the next ones of the copy. */
  readonly pendingNumbers: 'kept' | 'fresh';
  /** What pending says is appended only where it is the next number of an unknown key. */
  readonly checksPending: boolean;
  /** Pending numbers are appended only under the definition by which they were drafted. */
  readonly checksEdition: boolean;
  /** A draft waits until the copy shows the one before. */
  readonly waitsForPending: boolean;
  /**
   * Pending that the log contradicts stops the sequence until an operator repairs it; or the next draft replaces it.
   */
  readonly contradiction: 'stops' | 'drafts on';

  // (c) what is drafted
  /** Numbers go on at the copy's next; or at the head's. */
  readonly draftsFrom: 'copy' | 'head';
  /** A definition that the log does not show is stated there before anything is drafted. */
  readonly statesDefinition: boolean;
  /** Each number of a record takes a step. */
  readonly countsBySteps: boolean;
  /** Whether a sequence exists is read from the head too; or from the log alone. */
  readonly createAsksHead: boolean;

  // Reading
  /** Records count at their place; or losses wherever they lie; or all that continue the numbers, wherever they lie. */
  readonly counting: 'placed' | 'losses anywhere' | 'anywhere';
  /** Numbers below the next one leave it where it is. */
  readonly onlyGrows: boolean;

  // Replies
  readonly repliesFrom: 'log' | 'swap' | 'draft';
  /** Before a refusal, and before a sequence stops, the head is read again. */
  readonly refusesAfterLook: boolean;
  /** After a swap without an answer nothing is refused for good before another one has succeeded. */
  readonly refusesAfterSwap: boolean;
}

export const RULE: Rule = {
  swaps: 'before',
  swapsOrders: true,
  compares: true,
  keepsPending: true,
  readsAfterRefusal: true,
  silence: 'unknown',
  compareWith: 'first pending',
  statesLoss: 'first pending',
  horizonFrom: 'end and head',
  endLag: 0,
  repairs: true,
  seesJumps: true,
  coversGap: true,
  beginsWithHorizon: 'always',
  pendingNumbers: 'kept',
  checksPending: true,
  checksEdition: true,
  waitsForPending: true,
  contradiction: 'stops',
  draftsFrom: 'copy',
  statesDefinition: true,
  countsBySteps: true,
  createAsksHead: true,
  counting: 'placed',
  onlyGrows: true,
  repliesFrom: 'log',
  refusesAfterLook: true,
  refusesAfterSwap: true,
};

/** A record of the request topic; its offset is its place in the list. */
interface Request {
  readonly key: number;
  /** The offset of the first sending, as far as the record shows it. */
  readonly since: number;
  /** Sent again without a date, while nothing is lost yet. */
  readonly isUndated: boolean;
}

/** What an operator may do, once each, with each sequence. */
export type Order = 'create' | 'restart' | 'step 2' | 'close';

/** The bounds of the exploration. */
export interface World {
  readonly sequences: number;
  /** By key: its sequence, and how many numbers it asks for. */
  readonly keys: readonly { readonly sequence: number; readonly count: number }[];
  readonly requests: readonly Request[];
  /** The requests arrive one by one. */
  readonly isGradual: boolean;
  readonly workers: number;
  /** Records of the ledger, with the first statement of each sequence. */
  readonly entries: number;
  /** How many keys a draft has at most: what a transaction of etcd takes. */
  readonly draft: number;
  /** Appends that come late or twice, and swaps that come late. */
  readonly strays: number;
  readonly lates: number;
  readonly foreign: number;
  /** Records of something else that are there from the start. */
  readonly prefix: number;
  readonly orders: readonly Order[];
  /** The log loses its tail so often. */
  readonly losses: number;
  /** The first records, which it does not lose. */
  readonly keeps: number;
  /** A loss is a failover to a copy: it may have other offsets. An operator adopts it. */
  readonly isCopied: boolean;
  /** etcd is wiped or put back so often. */
  readonly wipes: number;
  /** Each memory loses only what the other one has. */
  readonly isApart: boolean;
  /** When a memory loses something, nothing is under way any more; when etcd does, workers start anew. */
  readonly isQuiet: boolean;
  /** So many records retention may take. */
  readonly trims: number;
  /** Workers state sequences again whenever they like. */
  readonly isRestated: boolean;
  /** Requests may be refused for good. One owner. */
  readonly hasRefusals: boolean;
  /** The log begins as the version before left it; one of its appends is under way. */
  readonly isUpgraded: boolean;
  /** The last worker is of the version before. */
  readonly hasOlder: boolean;
}

/** Whether the log itself may be wrong: then only what requesters were told is checked. */
export function isByTold({ swaps }: Rule, { hasOlder }: World): boolean {
  return swaps !== 'before' || hasOlder;
}

/** The first sending of a key. */
export function sinceOf({ requests }: World, key: number): number {
  return requests.find((request) => request.key === key)?.since ?? NONE;
}
