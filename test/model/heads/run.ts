import { explore, type Limits, type Result } from '../search.ts';
import { Liveness } from './liveness.ts';
import { modelOf } from './moves.ts';
import type { Rule, World } from './rule.ts';
import type { Case } from './worker.ts';

/** A rule in a world; with `isAnswered` it is also checked from each state that one owner then answers every request. */
export interface Run {
  readonly rule: Rule;
  readonly world: World;
  readonly isAnswered?: boolean;
}

/** Explores a world; `continued` is how many states the continuations had. */
export function exploreExample(
  { rule, world, isAnswered = false }: Run,
  limits: Limits,
): { readonly result: Result<Case>; readonly continued: number } {
  const liveness = isAnswered ? new Liveness(rule, world) : undefined;
  const model = modelOf(rule, world, (state) => liveness?.check(state));
  return { result: explore(model, limits), continued: liveness?.states ?? 0 };
}
