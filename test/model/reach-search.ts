import { hasBeginning, type Judgement, moves } from './moves.ts';
import type { Rule, World } from './rule.ts';
import { at, explore as exploreModel, type Limits, type Result as ResultOf, Violation } from './search.ts';
import { decode, encode, initialState, type Log, MARKER, NONE, type State } from './state.ts';

const CASES = [
  /** Requests that were never decided and are served. */
  'served',
  /** Of these, by a worker whose ledger partition has since been trimmed to nothing. */
  'servedFromEmptyLog',
  /** Of these, with an index that does not know everything. */
  'servedAfterLoss',
  /** Requests decided by entries that the worker no longer knows, and FORGOTTEN. */
  'forgottenRightly',
  /** Requests that were never decided, but might have been as far as the worker knows. */
  'forgottenInDoubt',
  /** Requests that were never decided, and that the check of time alone would have served. */
  'forgottenByOffset',
  /** Requests that were never decided, refused by a worker that knows everything. */
  'forgottenInVain',
  /** Second batches of the correlation ID with forged headers. */
  'forgedTwice',
] as const;

type Case = (typeof CASES)[number];
export type Result = ResultOf<Case>;

/** Goes through all states of the rule for old requests within the bounds, up to the first second batch. */
export function explore(rule: Rule, world: World, limits: Limits): Result {
  const ids = world.homes.length;
  return exploreModel<State, Case>(
    {
      initial: initialState(ids, world.workers),
      cases: CASES,
      encode,
      decode: (text) => decode(text, ids, world.workers),
      describe,
      moves: (state, { step, saw }) =>
        moves(rule, world, state, {
          step,
          replied({ batches }, id, batch) {
            const first = at(batches, id);
            if (first === NONE || first === batch) return;
            if (id === world.forged) saw('forgedTwice');
            else throw new Violation(`ID ${id} has batch ${first}, and gets batch ${batch}`);
          },
          judged: (judgement) => count(rule, judgement, saw),
        }),
    },
    limits,
  );
}

function count(rule: Rule, { state, index, request, verdict }: Judgement, saw: (name: Case) => void): void {
  const wasDecided = at(state.batches, request.id) !== NONE;
  if (wasDecided) {
    if (verdict !== 'serve') saw('forgottenRightly');
    return;
  }
  const isAgeless = request.time > state.now + rule.margin;
  const inReach = !hasBeginning(index) || request.time >= index.since + rule.margin;
  if (verdict === 'serve') {
    saw('served');
    const isEmptied = ({ low, entries }: Log) => low > 0 && low === entries.length && low === index.end;
    if (state.logs.some(isEmptied)) saw('servedFromEmptyLog');
    if (hasBeginning(index)) saw('servedAfterLoss');
  } else if (isAgeless) saw('forgottenInDoubt');
  else if (index.origin === 0) saw('forgottenInVain');
  else if (inReach) saw('forgottenByOffset');
  else saw('forgottenInDoubt');
}

function describe({ now, logs, workers }: State): string {
  const log = logs.map(({ low, entries }) => {
    const kept = entries
      .slice(low)
      .map(({ key, end, appendedAt }) => `${key === MARKER ? 'm' : key}/${end}@${appendedAt}`);
    return `${low}:[${kept.join(' ')}]`;
  });
  const known = workers.map(({ indexes }) => {
    const { origin, end, since, horizon } = at(indexes, 0);
    return `[${origin},${end}) since ${since} horizon ${horizon}`;
  });
  return `(now ${now}, logs ${log.join(' ')}, indexes ${known.join(' | ')})`;
}
