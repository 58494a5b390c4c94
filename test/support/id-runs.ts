/** IDs one after another that the same place gave. */
interface Run {
  readonly first: bigint;
  /** The ID after the last one. */
  readonly end: bigint;
  readonly from: string;
}

/** So many new runs are merged into the others at a time. */
const PENDING = 16_384;
/** As many examples as a report has room for. */
const EXAMPLES = 5;

/** Hundreds of millions of IDs with where each came from, kept as runs: it counts those that came twice. */
export class IdRuns {
  #merged: Run[] = [];
  #pending: Run[] = [];
  #ids = 0;
  #duplicates = 0;
  readonly #examples: string[] = [];

  /** All IDs that were added, those that came twice included. */
  get ids(): number {
    return this.#ids;
  }

  /** How often an ID came again. */
  get duplicates(): number {
    this.#merge();
    return this.#duplicates;
  }

  /** Where some of the IDs came from that came twice. */
  get examples(): readonly string[] {
    this.#merge();
    return this.#examples;
  }

  add(first: bigint, count: number, from: string): void {
    this.#ids += count;
    this.#pending.push({ first, end: first + BigInt(count), from });
    if (this.#pending.length >= PENDING) this.#merge();
  }

  #merge(): void {
    if (this.#pending.length === 0) return;
    const added = this.#pending.sort((one, other) => (one.first < other.first ? -1 : 1));
    const known = this.#merged;
    this.#pending = [];
    this.#merged = [];
    // Both are in order, so one pass suffices: the whole is not sorted again each time.
    for (let at = 0, next = 0; at < known.length || next < added.length; ) {
      const [one, other] = [known[at], added[next]];
      if (other === undefined || (one !== undefined && one.first <= other.first)) {
        this.#append(one as Run);
        at += 1;
      } else {
        this.#append(other);
        next += 1;
      }
    }
  }

  /** Appends a run that does not begin before the last one; counts what they share. */
  #append(run: Run): void {
    const last = this.#merged.at(-1);
    if (last === undefined || last.end < run.first || (last.end === run.first && last.from !== run.from)) {
      this.#merged.push(run);
      return;
    }
    if (last.end > run.first) this.#note(last, run);
    if (last.end >= run.end) return;
    if (last.from === run.from) this.#merged[this.#merged.length - 1] = { ...last, end: run.end };
    else this.#merged.push({ ...run, first: last.end });
  }

  #note(one: Run, other: Run): void {
    const isWhole = other.end <= one.end;
    const end = isWhole ? other.end : one.end;
    this.#duplicates += Number(end - other.first);
    if (this.#examples.length >= EXAMPLES) return;
    this.#examples.push(`${other.first} to ${end - 1n} from ${one.from} and from ${other.from}`);
  }
}
