import { explore, type Limits, type Result } from '../search.ts';
import { CASES, type Case, describe, moves } from './moves.ts';
import { decode, encode, initialState, type Rule, type State, type World } from './state.ts';

/** Goes through all states of the rule of ceilings within the bounds of a world, up to the first harm. */
export function exploreCeilings(
  { rule, world }: { readonly rule: Rule; readonly world: World },
  limits: Limits,
): Result<Case> {
  return explore<State, Case>(
    {
      initial: initialState(world),
      cases: CASES,
      encode,
      decode,
      describe,
      moves: (state, observer) => moves(rule, world, state, observer),
    },
    limits,
  );
}
