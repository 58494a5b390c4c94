import { explore, type Limits, type Model, type Observer, type Result } from './search.ts';

/**
 * What the models of sequences and of their heads have in common: a rule, each part of which can be broken, in a world
 * with bounds.
 */

/**
 * A rule in a world; with `isAnswered` it is also checked from each state that one owner then answers every request.
 */
export interface Run<Rule, World> {
  readonly rule: Rule;
  readonly world: World;
  readonly isAnswered?: boolean;
}

/** A mistake, or what the rule does not promise, and a small world in which it does harm. */
export interface Mutant<Rule, World> extends Run<Rule, World> {
  readonly name: string;
  /** What the harm is called. */
  readonly harm: string;
  /** Too far away for `npm test`. */
  readonly isDeep?: boolean;
}

/** Makes mutants of a rule, each by what it changes in the rule, and by the bounds of its world. */
export function mutantsOf<Rule, World, Bounds>(right: Rule, worldOf: (bounds: Bounds) => World) {
  type Making = (name: string, harm: string, change: Partial<Rule>, bounds: Bounds) => Mutant<Rule, World>;
  const mutant: Making = (name, harm, change, bounds) => {
    return { name, harm, rule: { ...right, ...change }, world: worldOf(bounds) };
  };
  /** The harm is that a request is never answered, or shows only once one owner goes on alone. */
  const unanswered: Making = (...of) => ({ ...mutant(...of), isAnswered: true });
  return { mutant, unanswered };
}

/** States as short strings, by which they are compared. */
export type Coding<State> = Pick<Model<State, never>, 'encode' | 'decode'>;

/** What a model is made of. */
export interface Theory<Rule, World, State, Case extends string> {
  readonly cases: readonly Case[];
  readonly codingFor: (rule: Rule, world: World) => Coding<State>;
  readonly initialState: (world: World) => State;
  /** Shows all steps from a state. */
  readonly moves: (rule: Rule, world: World, state: State, observer: Observer<State, Case>) => void;
  readonly describe: (state: State) => string;
  readonly Liveness: new (rule: Rule, world: World) => Liveness<Rule, World, State>;
}

/** Explores a world; `continued` is how many states the continuations had. */
export function exploreRun<Rule, World, State, Case extends string>(
  { codingFor, initialState, moves, Liveness, ...rest }: Theory<Rule, World, State, Case>,
  { rule, world, isAnswered = false }: Run<Rule, World>,
  limits: Limits,
): { readonly result: Result<Case>; readonly continued: number } {
  const liveness = isAnswered ? new Liveness(rule, world) : undefined;
  const model: Model<State, Case> = {
    ...rest,
    ...codingFor(rule, world),
    initial: initialState(world),
    moves(state, observer) {
      liveness?.check(state);
      moves(rule, world, state, observer);
    },
  };
  return { result: explore(model, limits), continued: liveness?.states ?? 0 };
}

/** The check that one owner alone answers everything, once faults end. It goes through all continuations of a state. */
export abstract class Liveness<Rule, World, State> {
  protected readonly rule: Rule;
  protected readonly world: World;
  readonly #encode: (state: State) => string;
  readonly #ended = new Set<string>();

  protected constructor(rule: Rule, world: World, { encode }: Coding<State>) {
    this.rule = rule;
    this.world = world;
    this.#encode = encode;
  }

  /** How many states the continuations had. */
  get states(): number {
    return this.#ended.size;
  }

  /** Throws Violation when some owner leaves some request without an answer. */
  abstract check(state: State): void;

  /** Whether a state of a continuation is new. */
  protected isNew(state: State, ...more: readonly number[]): boolean {
    const { size } = this.#ended;
    this.#ended.add(`${this.#encode(state)} ${more.join(' ')}`);
    return this.#ended.size > size;
  }
}
