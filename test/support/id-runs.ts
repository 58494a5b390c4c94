/** IDs one after another that the same place gave. */
interface Run {
  readonly first: bigint;
  /** The ID after the last one. */
  readonly end: bigint;
  readonly from: string;
}

/** So many new runs are merged into the others at a time. */
const PENDING = 65_536;
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
    const sorted = [...this.#merged, ...this.#pending].sort((one, other) => (one.first < other.first ? -1 : 1));
    this.#pending = [];
    this.#merged = [];
    for (const run of sorted) {
      const last = this.#merged.at(-1);
      if (last === undefined || last.end < run.first || (last.end === run.first && last.from !== run.from)) {
        this.#merged.push(run);
        continue;
      }
      if (last.end > run.first) this.#note(last, run);
      if (last.end < run.end) {
        const first = last.end;
        if (last.from === run.from) this.#merged[this.#merged.length - 1] = { ...last, end: run.end };
        else this.#merged.push({ ...run, first });
      }
    }
  }

  #note(one: Run, other: Run): void {
    const isWhole = other.end <= one.end;
    const end = isWhole ? other.end : one.end;
    this.#duplicates += Number(end - other.first);
    if (this.#examples.length >= EXAMPLES) return;
    this.#examples.push(`${other.first} to ${end - 1n} from ${one.from} and from ${other.from}`);
  }
}
