import type { SequenceRow } from '../core/sequence-row.ts';
import { nameOf } from '../ledger/decided.ts';
import type { Head } from '../ledger/heads.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { LedgerIndex } from '../ledger/ledger-ports.ts';
import { type HeadsView, lossesNow, lossRecords } from '../ledger/sequence-rule.ts';
import type { NumbersObserver } from './ports.ts';

interface LossDeps {
  readonly ledger: Ledger;
  readonly index: LedgerIndex;
  readonly observe: Pick<NumbersObserver, 'lost'>;
}

/** What became of a step: nothing is due any more; some losses were stated; what was appended is void. */
type LossStep = 'done' | 'stated' | 'overtaken';

/**
 * States every loss that is due in a partition, also of sequences for which nobody asks. A statement lets unknown
 * requests from before it be FORGOTTEN. So the later it came, the more new requests it would refuse; and all of them
 * have one `through`.
 */
export class PartitionLosses {
  readonly #deps: LossDeps;
  readonly #partition: number;
  readonly #head: Head;
  /**
   * The highest request that may have been decided by what is lost; undefined before a loss was seen in this life of
   * the copy.
   */
  #through: number | undefined;
  #restores = -1;

  /** `head` has all sequences of the partition. */
  constructor(deps: LossDeps, partition: number, head: Head) {
    this.#deps = deps;
    this.#partition = partition;
    this.#head = head;
  }

  /** How often the copy had been restored at the last step. */
  get restores(): number {
    return this.#restores;
  }

  /** States some of them, in the partition's turn. Rejects as the ledger does. */
  step(): Promise<LossStep> {
    return this.#deps.ledger.inTurn(this.#partition, () => this.#inTurn());
  }

  async #inTurn(): Promise<LossStep> {
    const { ledger, index, observe } = this.#deps;
    const [partition, head] = [this.#partition, this.#head];
    await ledger.catchUp(partition);
    const restores = ledger.ends.restores(partition);
    if (restores !== this.#restores) this.#through = undefined;
    this.#restores = restores;
    const [end, life] = [index.end(partition), ledger.life(partition)];
    const row = (name: string) => index.sequence(partition, name);
    const firstOf = await this.#firstsOf(row);
    // The losses are those of one moment.
    if (index.end(partition) !== end || ledger.life(partition) !== life) return 'overtaken';
    const names = new Set([...head.names, ...[...index.sequences(partition)].map(([name]) => name)]);
    const due = lossesNow({ row, head, firstOf }, names);
    if (due.length === 0) return 'done';
    const next = new Map(due.map(({ sequence }) => [sequence, row(sequence)?.known.next]));
    const known = Math.max(index.through(partition), head.through);
    // All that was decided and is lost had been sent before this moment.
    this.#through ??= Math.max(known, (await ledger.requestEnd(partition, known)) - 1);
    const through = this.#through;
    const entries = lossRecords(due, (sequence) => next.get(sequence), { end, through });
    const { baseOffset } = await ledger.commit(partition, { end, life, entries });
    if (baseOffset !== end) return 'overtaken';
    for (const { sequence, next: to } of due.slice(0, entries.length)) {
      observe.lost({ partition, sequence, from: next.get(sequence) ?? 0, to, through });
    }
    return 'stated';
  }

  /** What the copy shows for the keys of pending numbers of the sequences that lack the record of some. */
  async #firstsOf(row: (name: string) => SequenceRow | undefined): Promise<HeadsView['firstOf']> {
    const numbers = this.#head.pending.filter((one) => one.kind === 'numbers');
    const lacking = numbers.filter(({ sequence, entry: { first, count, step } }) => {
      return first + count * step > (row(sequence)?.known.next ?? 0);
    });
    if (lacking.length === 0) return ({ entry }) => entry.first;
    const names = new Set(lacking.map(({ sequence }) => sequence));
    const keys = numbers.flatMap(({ sequence, key }) => (names.has(sequence) ? { key, name: nameOf(key) } : []));
    const found = await this.#deps.ledger.decided(this.#partition, keys);
    return ({ key, entry, sequence }) => {
      const decided = found.get(nameOf(key));
      if (!names.has(sequence)) return entry.first;
      return typeof decided === 'object' && decided.entry.kind === 'numbers' ? decided.entry.first : undefined;
    };
  }
}
