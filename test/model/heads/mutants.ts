import { type Mutant, mutantsOf } from '../run.ts';
import { ALL, type Bounds, ETCD, KEYS, ONE, worldOf } from './bounds.ts';
import { RULE, type Rule, type World } from './rule.ts';

const { mutant, unanswered } = mutantsOf(RULE, worldOf);

const LOST: Bounds = { ...ALL, losses: 1, entries: 3 };
const FOREIGN: Bounds = { ...LOST, foreign: 1 };
const CLOSED: Bounds = { ...ONE, ...ALL, orders: ['close'] };

const ETCD_FIRST: readonly Mutant<Rule, World>[] = [
  mutant('no swap: the log alone decides, as before heads', 'are both told', { swaps: 'never' }, LOST),
  mutant('records are appended before the swap', 'told', { swaps: 'after' }, { ...LOST, foreign: 1 }),
  mutant('a put instead of a compare-and-swap', 'given twice', { compares: false }, LOST),
  mutant('pending is not kept', 'though nothing is lost', { keepsPending: false }, ALL),
  mutant('a refused swap is sent again unread', 'given twice', { readsAfterRefusal: false }, LOST),
  mutant('silence is success', 'given twice', { silence: 'success' }, LOST),
  mutant('replies before the swap', 'nothing is decided', { repliesFrom: 'draft' }, ALL),
  mutant('replies after the swap', 'nothing is decided', { repliesFrom: 'swap' }, ALL),
  mutant(
    'EXPIRED after a swap without an answer',
    'was refused for good',
    { refusesAfterSwap: false },
    { ...ALL, workers: 1, hasRefusals: true, lates: 1 },
  ),
];

const LOSSES: readonly Mutant<Rule, World>[] = [
  mutant('the head does not count', 'given twice', { compareWith: 'nothing', contradiction: 'drafts on' }, LOST),
  mutant(
    'pending is appended, then the head is compared',
    'and gets those from',
    { compareWith: 'next', checksPending: false, seesJumps: false },
    LOST,
  ),
  mutant(
    'numbers go on without a loss in the log',
    'and gets those from',
    { statesLoss: 'never', draftsFrom: 'head', checksPending: false },
    LOST,
  ),
  mutant("a loss states the head's next, as if pending were in the log", 'skipped', { statesLoss: 'next' }, LOST),
  mutant('a loss without a horizon', 'and gets those from', { horizonFrom: 'nothing' }, LOST),
  mutant(
    'a loss with an end of the requests that is one too low',
    'and gets those from',
    { horizonFrom: 'end', endLag: 1 },
    LOST,
  ),
  mutant(
    'a loss that does not look at the end of the requests',
    'and gets those from',
    { horizonFrom: 'head' },
    { ...LOST, sent: [0, 1, { again: 0 }], keeps: 1, workers: 1, entries: 4 },
  ),
  mutant(
    'a jump is not seen',
    'and gets those from',
    { seesJumps: false },
    { ...FOREIGN, workers: 1, strays: 1, entries: 4 },
  ),
  {
    ...mutant(
      'a row begins without a horizon',
      'and gets those from',
      { beginsWithHorizon: 'never' },
      { ...LOST, trims: 1, foreign: 1, strays: 1, workers: 1, entries: 4 },
    ),
    isDeep: true,
  },
  mutant(
    'an order begins a row without a horizon',
    'and gets those from',
    { beginsWithHorizon: 'not in orders' },
    { ...LOST, ...ONE, orders: ['restart'], foreign: 1, strays: 1, workers: 1, entries: 4 },
  ),
  mutant(
    'a number of before sets the copy back',
    'given twice',
    { onlyGrows: false },
    { ...LOST, keys: KEYS.three, prefix: 2, strays: 1, workers: 1, entries: 5 },
  ),
  mutant('a loss counts anywhere', 'though nothing is lost', { counting: 'losses anywhere' }, { ...ALL }),
  mutant(
    'records count anywhere',
    'though nothing is lost',
    { counting: 'anywhere' },
    { ...ETCD, draft: 2, entries: 3 },
  ),
];

const RETENTION: readonly Mutant<Rule, World>[] = [
  unanswered(
    'a row that retention took is not stated from the head',
    'is never answered',
    { compareWith: 'nothing' },
    { ...ALL, ...ONE, trims: 3, entries: 3 },
  ),
];

const REFUSALS: readonly Mutant<Rule, World>[] = [
  unanswered(
    'UNKNOWN_SEQUENCE after a look at the log alone',
    'is never answered',
    { refusesAfterLook: false },
    { ...LOST, ...ONE, orders: ['create'], entries: 2 },
  ),
];

const PENDING: readonly Mutant<Rule, World>[] = [
  mutant(
    'pending gets fresh numbers',
    'and gets those from',
    { pendingNumbers: 'fresh', compareWith: 'next', checksPending: false },
    LOST,
  ),
  mutant(
    'pending is appended though the log contradicts it',
    'given twice',
    { checksPending: false },
    { ...ETCD, entries: 3 },
  ),
  mutant('a cut: the second draft does not wait for the first', 'given twice', { waitsForPending: false }, LOST),
  mutant(
    'numbers go on where a head that is behind says',
    'given twice',
    { draftsFrom: 'head', repairs: false, checksPending: false },
    { ...ETCD, entries: 3 },
  ),
  unanswered(
    'a head that is behind the log is left so',
    'a sequence stops',
    { draftsFrom: 'head', repairs: false },
    { ...ALL, isUpgraded: true, entries: 3 },
  ),
  unanswered(
    'pending numbers of an older definition are appended',
    'is closed',
    { checksEdition: false },
    { ...ETCD, ...CLOSED, entries: 3 },
  ),
];

const ORDERS: readonly Mutant<Rule, World>[] = [
  mutant(
    'orders are appended unswapped: a close is lost',
    'is closed',
    { swapsOrders: false },
    { ...LOST, ...CLOSED, keeps: 1, entries: 3 },
  ),
  mutant(
    'orders are appended unswapped: a restart is lost',
    'where 3 is due',
    { swapsOrders: false },
    { ...LOST, orders: ['restart'], keeps: 1, entries: 3 },
  ),
  mutant(
    'a sequence is created again without a look at the head',
    'given twice',
    { createAsksHead: false },
    { ...LOST, orders: ['create', 'create'], workers: 1, entries: 3 },
  ),
  mutant(
    'a definition that the log lost is not stated again',
    'in steps of',
    { statesDefinition: false },
    { ...LOST, orders: ['step 2'], workers: 1, entries: 4 },
  ),
  mutant(
    'numbers are counted without their step',
    'steps',
    { countsBySteps: false },
    { ...ALL, orders: ['step 2'], keys: [[0, 2]] },
  ),
];

const LIMITS: readonly Mutant<Rule, World>[] = [
  mutant(
    'each loses what the other has, while an append of before is under way',
    'given twice',
    {},
    { ...ALL, losses: 1, wipes: 1, isApart: true, entries: 3 },
  ),
  mutant('both lose the same decision', 'given twice', {}, { ...LOST, wipes: 1 }),
  mutant(
    'a worker of the version before beside new ones: the log loses its tail',
    'are both told 1',
    {},
    { ...LOST, hasOlder: true },
  ),
  unanswered(
    'a worker of the version before beside new ones: nothing is lost',
    'a sequence stops',
    {},
    { ...ALL, hasOlder: true, entries: 3 },
  ),
  unanswered(
    'the first head is written without a record that voids older ones',
    'a sequence stops',
    { statesDefinition: false },
    { ...ALL, isUpgraded: true, entries: 3 },
  ),
];

export const MUTANTS: readonly Mutant<Rule, World>[] = [
  ...ETCD_FIRST,
  ...LOSSES,
  ...RETENTION,
  ...REFUSALS,
  ...PENDING,
  ...ORDERS,
  ...LIMITS,
];
