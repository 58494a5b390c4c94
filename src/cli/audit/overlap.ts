import type { Finding } from './check.ts';
import type { IdRun } from './store.ts';

/** How many runs are kept before those that have ended are dropped. */
const MAX_ENDED = 10_000;

/**
 * Finds IDs that are in two batches. Runs come ordered by their first ID. Every batch that shares an ID with another is in
 * a finding, though not with each batch that it shares IDs with.
 *
 * Of runs with one step and one remainder, the one that ends last is kept: a run that begins before its end shares an ID
 * with it. Where runs of different steps meet follows from the Chinese remainder theorem.
 */
export class OverlapSearch {
  readonly #find: (finding: Finding) => void;
  readonly #bySteps = new Map<bigint, Map<bigint, IdRun>>();
  #kept = 0;
  #limit = MAX_ENDED;

  constructor(find: (finding: Finding) => void) {
    this.#find = find;
  }

  /** How many runs are held. */
  get kept(): number {
    return this.#kept;
  }

  take(run: IdRun): void {
    for (const [step, open] of this.#bySteps) {
      if (step === run.step) this.#meet(open.get(run.first % step), run);
      else this.#meetAll(open, run);
    }
    let open = this.#bySteps.get(run.step);
    if (open === undefined) {
      open = new Map();
      this.#bySteps.set(run.step, open);
    }
    const remainder = run.first % run.step;
    const before = open.get(remainder);
    if (before === undefined) this.#kept += 1;
    if (before === undefined || before.last < run.last) open.set(remainder, run);
    if (this.#kept >= this.#limit) this.#dropEnded(run.first);
  }

  /** Compares a run with those of another step, and drops those that have ended. */
  #meetAll(open: Map<bigint, IdRun>, run: IdRun): void {
    for (const [remainder, other] of open) {
      if (other.last < run.first) {
        open.delete(remainder);
        this.#kept -= 1;
      } else if (sharesId(other, run)) this.#meet(other, run);
    }
  }

  #meet(other: IdRun | undefined, run: IdRun): void {
    if (other === undefined || other.unit === run.unit || other.last < run.first) return;
    const message = `two batches share IDs: ${other.first} to ${other.last} and ${run.first} to ${run.last}`;
    this.#find({ code: 'OVERLAP', message, locations: [other, run] });
  }

  #dropEnded(first: bigint): void {
    this.#kept = 0;
    for (const [step, open] of this.#bySteps) {
      for (const [remainder, { last }] of open) if (last < first) open.delete(remainder);
      if (open.size === 0) this.#bySteps.delete(step);
      this.#kept += open.size;
    }
    this.#limit = Math.max(MAX_ENDED, 2 * this.#kept);
  }
}

/** Whether two runs, of which `b` begins no earlier, have an ID in common. */
export function sharesId(
  a: Pick<IdRun, 'first' | 'last' | 'step'>,
  b: Pick<IdRun, 'first' | 'last' | 'step'>,
): boolean {
  // x = b.first + b.step·k must be a.first modulo a.step; the least such k >= 0 gives the first ID in common.
  const [divisor, inverse] = extendedGcd(b.step % a.step, a.step);
  const gap = modulo(a.first - b.first, a.step);
  if (gap % divisor !== 0n) return false;
  const k = modulo((gap / divisor) * inverse, a.step / divisor);
  const shared = b.first + k * b.step;
  return shared <= a.last && shared <= b.last;
}

/** The greatest common divisor of `value` and `modulus`, and what `value` times it is the divisor modulo `modulus`. */
function extendedGcd(value: bigint, modulus: bigint): readonly [bigint, bigint] {
  let [a, b, x, y] = [value, modulus, 1n, 0n];
  while (b !== 0n) {
    const quotient = a / b;
    [a, b, x, y] = [b, a - quotient * b, y, x - quotient * y];
  }
  return [a, x];
}

function modulo(value: bigint, modulus: bigint): bigint {
  return ((value % modulus) + modulus) % modulus;
}
