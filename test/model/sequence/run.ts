import { exploreRun, type Run, type Theory } from '../run.ts';
import type { Limits } from '../search.ts';
import { codingFor } from './coding.ts';
import { OneOwner } from './liveness.ts';
import { describe, initialState, moves } from './moves.ts';
import type { Rule, World } from './rule.ts';
import type { State } from './state.ts';
import { CASES, type Case } from './worker.ts';

const THEORY: Theory<Rule, World, State, Case> = {
  cases: CASES,
  codingFor,
  initialState,
  moves,
  describe,
  Liveness: OneOwner,
};

export function exploreExample(run: Run<Rule, World>, limits: Limits) {
  return exploreRun(THEORY, run, limits);
}
