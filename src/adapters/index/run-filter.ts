/** Runs that share one array, a bit each. */
const GROUP = 8;
/** 16 bits for each entry of a full run: one look-up in 700 meets a run for nothing. */
const SLOT_BITS = 19;
const MASK = 2 ** SLOT_BITS - 1;
const PROBES = 5;

const NONE: readonly number[] = Object.freeze([]);

/**
 * Tells in memory which runs may hold a hash, so that the look-up of a new key need not read any of them.
 *
 * Bloom filters of eight runs lie in one array, a run's bits in the same bit of each byte: one probe tests all eight.
 * It takes two bytes an entry.
 */
export class RunFilter {
  readonly #groups = new Map<number, Uint8Array>();
  #from = 0;

  add(run: number, hash: number): void {
    const group = this.#group(Math.floor(run / GROUP));
    const bit = 1 << (run % GROUP);
    let at = hash & MASK;
    const stride = strideOf(hash);
    for (let probe = 0; probe < PROBES; probe++) {
      group[at] = (group[at] as number) | bit;
      at = (at + stride) & MASK;
    }
  }

  /** Runs that may hold the hash, in rising order. */
  runsOf(hash: number): readonly number[] {
    let found: number[] | undefined;
    const start = hash & MASK;
    const stride = strideOf(hash);
    for (const [number, group] of this.#groups) {
      let bits = 0xff;
      let at = start;
      for (let probe = 0; probe < PROBES && bits !== 0; probe++) {
        bits &= group[at] as number;
        at = (at + stride) & MASK;
      }
      for (let run = number * GROUP; bits !== 0; run++, bits >>>= 1) {
        if ((bits & 1) === 0 || run < this.#from) continue;
        found ??= [];
        found.push(run);
      }
    }
    return found ?? NONE;
  }

  /** Forgets all runs below this one. */
  dropBelow(run: number): void {
    this.#from = run;
    for (const number of this.#groups.keys()) if ((number + 1) * GROUP <= run) this.#groups.delete(number);
  }

  #group(number: number): Uint8Array {
    const known = this.#groups.get(number);
    if (known !== undefined) return known;
    const made = new Uint8Array(MASK + 1);
    this.#groups.set(number, made);
    return made;
  }
}

/** The upper half of the hash; odd, so that the probes of one hash differ. */
function strideOf(hash: number): number {
  return Math.floor(hash / 2 ** SLOT_BITS) | 1;
}
