import { type Mutant, mutantsOf } from '../run.ts';
import { type Bounds, REQUESTS, TRIMMED, worldOf } from './bounds.ts';
import { RULE, type Rule, type World } from './rule.ts';

const { mutant, unanswered } = mutantsOf(RULE, worldOf);

const PAIRS: Bounds = { entries: 4, requests: REQUESTS.three };
const SINGLES: Bounds = { ...PAIRS, hasPairs: false };
const TRIM: Bounds = { ...TRIMMED, hasPairs: false, entries: 5, strays: 0 };
const TRIM_ONE: Bounds = { ...TRIM, requests: REQUESTS.one, workers: 1, entries: 4, strays: 1 };
const TWO_SEQUENCES: Bounds = { sequences: 2, requests: REQUESTS.ofTwo, entries: 5 };
const RESENT: Bounds = { ...SINGLES, requests: REQUESTS.resent, isRenewed: true };
const REFUSING: Bounds = { ...SINGLES, workers: 1, hasRefusals: true, losesIndexes: true };

const DESIGNS: readonly Mutant<Rule, World>[] = [
  mutant('numbers count wherever they lie, if their key is new', 'a double', { counting: 'first of its key' }, SINGLES),
  mutant('numbers count where they continue the sequence', 'and gets those from', { counting: 'slot' }, PAIRS),
  mutant(
    'numbers are the total of the winners, of which some are gone',
    'a row of sequence 0 says',
    { counting: 'total', honoursDoubt: false },
    TRIM_ONE,
  ),
  mutant(
    'records name their predecessor, which a restored index does not know',
    'is not decided',
    { counting: 'chained', honoursDoubt: false },
    TRIM_ONE,
  ),
];

const READING: readonly Mutant<Rule, World>[] = [
  mutant('a void record is indexed', 'is not decided', { leavesOutVoid: false }, SINGLES),
  mutant(
    'a void record shows the next number',
    'a row of',
    { rowFrom: 'void' },
    { ...TRIM, isStated: false, strays: 1 },
  ),
  mutant('numbers show the row', 'a row of', { rowFrom: 'numbers' }, { ...TRIM, workers: 1, orders: ['max'] }),
  mutant('a sequence without a row starts at 1', 'a row of', { withoutRow: 'starts at 1' }, { ...TRIM, workers: 1 }),
  mutant('a renewal raises the next number', 'a row of', { renewals: 'raise' }, RESENT),
  mutant('a renewal takes new numbers', 'and gets those from', { renewals: 'take' }, RESENT),
  mutant(
    'a row is saved apart from the end',
    'a row of',
    { savesRowWithEnd: false },
    { ...SINGLES, workers: 1, hasOlder: true },
  ),
  mutant('a worker takes its own records to count', 'is not decided', { ownMayBeVoid: false }, SINGLES),
  mutant(
    'each record has a time of its own',
    'a gap',
    { isTimedByAppend: false },
    { ...PAIRS, workers: 1, hasWindows: true },
  ),
];

const STATING: readonly Mutant<Rule, World>[] = [
  mutant(
    'a statement of a worker counts wherever it lies',
    'back',
    { statements: 'renewed anywhere' },
    { ...SINGLES, isStated: true },
  ),
  mutant(
    'an order counts wherever it lies',
    'back',
    { statements: 'operators anywhere' },
    { ...SINGLES, orders: ['step 2'] },
  ),
  mutant(
    'an order counts wherever it lies, beside another order',
    'opens it again',
    { statements: 'operators anywhere' },
    { ...SINGLES, orders: ['close', 'step 2'] },
  ),
  mutant('an operator restarts without reading', 'back', { operatorReads: false }, { ...SINGLES, orders: ['restart'] }),
  mutant(
    'an order shows what requests were decided',
    'and gets those from',
    { operatorShowsNothing: false },
    { ...TRIM, entries: 4, workers: 1, strays: 1, orders: ['create again'] },
  ),
  mutant('a closed sequence is served', 'is closed', { heedsClosed: false }, { ...SINGLES, orders: ['close'] }),
  mutant('the largest number is no limit', 'ends at', { heedsMax: false }, { ...SINGLES, orders: ['max'] }),
];

const DECIDING: readonly Mutant<Rule, World>[] = [
  mutant(
    'the place is the end of the log, not of the look-up',
    'and gets those from',
    { lookUp: 'place from the broker' },
    SINGLES,
  ),
  mutant(
    'end and row are read after the keys were looked up',
    'and gets those from',
    { lookUp: 'end and row later' },
    SINGLES,
  ),
  mutant('the key has no name in it', 'CONFLICT', { hasNameInKey: false }, { ...TWO_SEQUENCES, hasPairs: false }),
  mutant(
    'a key is drafted twice in an append',
    'and gets those from',
    { draftsKeyOnce: false },
    { ...PAIRS, requests: REQUESTS.equal },
  ),
  mutant('first adds the counts of all sequences', 'a gap', { firstAdds: 'all' }, TWO_SEQUENCES),
  mutant('first adds nothing', 'a double', { firstAdds: 'none' }, PAIRS),
  mutant('what is forgotten is served', 'and gets those from', { refusesForgotten: false }, TRIM),
  mutant(
    'a restored index decides without a marker',
    'and gets those from',
    { marksBeforeDeciding: false },
    { ...TRIM, workers: 1 },
  ),
  mutant('a refused request takes numbers', 'a gap', { refusalTakes: true }, SINGLES),
  mutant(
    'a request in conflict takes numbers',
    'and gets those from',
    { conflictTakes: true },
    { ...SINGLES, requests: REQUESTS.conflict },
  ),
  mutant('a number is passed when it is sent', 'a row of', { waitsToCount: false }, SINGLES),
];

const SETTLING: readonly Mutant<Rule, World>[] = [
  mutant('a reply has what was answered', 'is not decided', { repliesFrom: 'answered append' }, SINGLES),
  mutant('a reply does not wait for the answer', 'is not decided', { repliesFrom: 'append' }, SINGLES),
  mutant('a refusal does not wait for a marker', 'was refused', { marksAfterSilence: false }, REFUSING),
];

const ANSWERS: readonly Mutant<Rule, World>[] = [
  unanswered('a void record is not drafted again', 'never answered', { afterVoid: 'leaves' }, SINGLES),
  unanswered('a void record is sent again as it was', 'no answer yet', { afterVoid: 'sends again' }, SINGLES),
  unanswered(
    'places leave out the entries of IDs',
    'no answer yet',
    { placesCount: 'numbers' },
    { ...PAIRS, requests: REQUESTS.besideIds },
  ),
  unanswered('a request waits for a row', 'never answered', { withoutRow: 'waits' }, { ...TRIM, isGradual: true }),
];

/** Each breaks an invariant, or leaves a request without an answer. */
export const MUTANTS: readonly Mutant<Rule, World>[] = [
  ...DESIGNS,
  ...READING,
  ...STATING,
  ...DECIDING,
  ...SETTLING,
  ...ANSWERS,
];
