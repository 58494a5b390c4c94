import { Mutex } from '../async/mutex.ts';
import { Backoff } from '../async/retrying.ts';
import type { Runtime } from '../async/runtime.ts';
import { EntryKey } from '../codec/ledger-key.ts';
import type { SequenceRow } from '../core/sequence-row.ts';
import { IdallocError } from '../errors.ts';
import { type Head, joined, type LedgerHeads } from '../ledger/heads.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { LedgerIndex, TimeStep } from '../ledger/ledger-ports.ts';
import { type HeadsView, lossesNow, lossRecords } from '../ledger/sequence-rule.ts';
import type { Decision } from './decision.ts';
import type { Accepted } from './intake.ts';
import { type Known, type LookDeps, type Looked, look, NumbersPart } from './numbers-look.ts';
import type { NumbersObserver } from './ports.ts';
import type { RulingDeps } from './rulings.ts';
import type { PartTrace } from './trace.ts';

/** What decides about the requests of one part. */
export interface NumbersDeps extends RulingDeps {
  readonly ledger: Ledger;
  readonly trace: PartTrace;
}

export interface NumbersOptions {
  readonly heads: LedgerHeads;
  /** The UUID of the namespace. Throws NO_IDENTITY before it is known. */
  readonly namespace: () => string;
  readonly runtime: Pick<Runtime, 'sleep' | 'random'>;
  readonly timeStep: TimeStep;
  readonly observe: NumbersObserver;
}

/** How often a part is begun again because another writer was first. */
const MAX_OVERTAKEN = 8;
/** Looks at one part: some for each of its sequences, should the ledger have lost all of them. */
const MAX_LOOKS = 1_000;
/**
 * The rests before another try: about the time of some appends, at random, so that two owners don't overtake each other
 * for ever.
 */
const REST_MS = { minMs: 20, maxMs: 200 };
/**
 * How long after a swap that etcd refused, as it does without space, this worker tries the next one, of whatever
 * partition.
 */
const REFUSED_REST_MS = 1_000;
/** Sequences whose heads are remembered in a partition; whoever invents names must not fill the memory. */
const MAX_NAMES = 1_000;

/** What is known of one partition. */
interface PartitionNumbers {
  known: Known | undefined;
  /** The revision of this worker's last swap, unless one without an answer came after it. */
  ownRevision: bigint | undefined;
  /** How often the copy had been restored when all losses were stated; undefined in a new term of ownership. */
  stated: number | undefined;
  /** Rises with each term of ownership that begins or ends. */
  term: number;
  readonly mutex: Mutex;
  /** Parts, and statements of losses, that hold the mutex or wait for it. */
  parts: number;
  /** The sequences that were found to be stopped. */
  readonly stopped: Set<string>;
}

/**
 * Decides requests for numbers: etcd decides which numbers, by a swap, and holds them until the ledger shows them; the
 * ledger decides for whom, and remembers it. `docs/internals/sequences.md` has the rule, and `ledger/sequence-rule`
 * applies it.
 *
 * One part of a partition at a time looks, swaps and appends, whatever its lane. What it looks at is the copy of the
 * ledger and the head at one moment, in the partition's turn; while it waits for etcd, the turn is given back, so that
 * IDs go on. A head stays known until a swap is refused or not answered, the copy is restored, or the partition is
 * taken over: then it is read again, and after it the ledger, to its end.
 *
 * A part in progress goes on when the gate closes: what it has swapped in is decided, and whoever serves the partition
 * next completes it if this worker does not.
 */
export class NumberDecisions {
  readonly #options: NumbersOptions;
  readonly #places = new Map<number, PartitionNumbers>();
  /** The last swap was refused by etcd. */
  #isRefused = false;
  /** While swaps are refused, one at a time tries whether they still are. */
  readonly #probes = new Mutex();

  constructor(options: NumbersOptions) {
    this.#options = options;
  }

  /** A term of ownership begins or ends: another worker may have swapped, and this one's last swap may be under way. */
  forget(partition: number): void {
    const place = this.#places.get(partition);
    if (place === undefined) return;
    if (place.parts === 0) this.#places.delete(partition);
    place.known = undefined;
    place.stated = undefined;
    place.term += 1;
    place.ownRevision = undefined;
    place.stopped.clear();
  }

  /** How many sequences are stopped, as far as requests for their numbers have shown it. */
  get stopped(): number {
    return [...this.#places.values()].reduce((sum, { stopped }) => sum + stopped.size, 0);
  }

  /**
   * One decision for each request, in order. Known ones get theirs without a look at etcd. Rejects with
   * ETCD_UNAVAILABLE or ETCD_REFUSED while new numbers can't be swapped in, with OVERTAKEN, and as the ledger does.
   */
  async decide(given: NumbersDeps, partition: number, requests: readonly Accepted[]): Promise<Decision[]> {
    const deps = { ...given, namespace: this.#options.namespace };
    const part = new NumbersPart(partition, requests);
    const place = this.#placeOf(partition);
    if (place.parts > 0) {
      const next = await look(deps, part, () => undefined);
      if (next.kind === 'decided') return part.decisions();
    }
    place.parts += 1;
    try {
      await place.mutex.run(() => this.#decideAll(deps, part, place));
    } finally {
      place.parts -= 1;
    }
    this.#noteStopped(part, place);
    return part.decisions();
  }

  /**
   * States what the ledger has lost of a partition's sequences, unless nothing can have been lost since that was done.
   * To be called when the partition is taken over or its copy restored; new numbers wait for it in any case. Rejects as
   * `decide` does.
   */
  async stateLosses(deps: Pick<NumbersDeps, 'ledger' | 'index'>, partition: number): Promise<void> {
    const place = this.#placeOf(partition);
    if (place.stated === deps.ledger.ends.restores(partition)) return;
    place.parts += 1;
    try {
      await place.mutex.run(() => this.#stateAll(deps, partition, place));
    } finally {
      place.parts -= 1;
    }
  }

  async #stateAll(
    { ledger, index }: Pick<NumbersDeps, 'ledger' | 'index'>,
    partition: number,
    place: PartitionNumbers,
  ): Promise<void> {
    const { heads, runtime, observe } = this.#options;
    if (place.stated === ledger.ends.restores(partition)) return;
    const { term } = place;
    const losses = new PartitionLosses({ ledger, index, observe }, partition, await heads.readAll(partition));
    const rests = new Backoff(REST_MS, () => runtime.random());
    for (let step = await losses.step(); step !== 'done'; step = await losses.step()) {
      if (step === 'stated') continue;
      if (rests.failures === MAX_OVERTAKEN) throw overtaken(partition, 'losses were to be stated');
      await runtime.sleep(rests.nextMs());
    }
    if (place.term === term) place.stated = losses.restores;
  }

  async #decideAll(deps: LookDeps, part: NumbersPart, place: PartitionNumbers): Promise<void> {
    const { runtime, observe } = this.#options;
    const rests = new Backoff(REST_MS, () => runtime.random());
    for (let looks = 0; looks < MAX_LOOKS && rests.failures < MAX_OVERTAKEN; looks += 1) {
      const next = await look(deps, part, () => place.known);
      switch (next.kind) {
        case 'decided':
          return;
        case 'appended':
          break;
        case 'overtaken':
          await runtime.sleep(rests.nextMs());
          break;
        case 'lost':
          place.known = undefined;
          place.stated = undefined;
          break;
        case 'read':
          await this.#read(deps, part, place);
          break;
        case 'swap':
          if (!(await this.#swap(deps, part, place, next))) await runtime.sleep(rests.nextMs());
          else if (next.isRepair) observe.repaired(part.partition);
      }
    }
    throw overtaken(part.partition, `numbers of ${[...part.sequences()].join(', ')} were to be given out`);
  }

  /** Reads the head. What the ledger says is read to its end afterwards, before the next look. */
  async #read(deps: LookDeps, part: NumbersPart, place: PartitionNumbers): Promise<void> {
    const { partition } = part;
    const { term } = place;
    await this.#stateAll(deps, partition, place);
    // What was pending probably still is, and would be read in a second call.
    const pending = (place.known?.head.pending ?? []).map(({ sequence }) => sequence);
    const read = await this.#options.heads.read(partition, new Set([...part.sequences(), ...pending]));
    part.hasReadHead();
    if (place.term !== term) return; // another worker may have swapped since
    const before = place.known;
    const life = deps.ledger.life(partition);
    const isSame = before?.head.revision === read.revision;
    place.known = {
      head: isSame && before.head.names.size < MAX_NAMES ? joined(before.head, read) : read,
      life,
      isOwn: read.revision === place.ownRevision,
      // A copy that was restored since may show less: the ledger may have lost what it showed before.
      shown: isSame && before.life === life ? before.shown : new Map(),
    };
  }

  /** Whether the change was swapped in. If not, or if nobody knows, the head is read again before the next look. */
  async #swap(
    deps: LookDeps,
    part: NumbersPart,
    place: PartitionNumbers,
    { known, change }: Extract<Looked, { readonly kind: 'swap' }>,
  ): Promise<boolean> {
    const { heads, timeStep, observe } = this.#options;
    const { term } = place;
    const swap = () => timeStep('swap', () => this.#paced(() => heads.swap(part.partition, known.head, change)));
    let head: Head | undefined;
    try {
      head = await deps.trace.step('swap', () => part.records(), swap);
      observe.swapped(head === undefined ? 'refused' : 'done');
    } catch (error) {
      place.known = undefined;
      place.ownRevision = undefined;
      const isUnanswered = error instanceof IdallocError && error.code === 'ETCD_UNAVAILABLE';
      observe.swapped(isUnanswered ? 'unanswered' : 'failed');
      if (!isUnanswered) throw error;
      return false;
    }
    place.known = undefined;
    if (head === undefined || place.term !== term) return head !== undefined;
    place.known = { head, life: known.life, isOwn: true, shown: new Map() };
    place.ownRevision = head.revision;
    return true;
  }

  async #paced<T>(swap: () => Promise<T>): Promise<T> {
    const attempt = async (): Promise<T> => {
      try {
        const done = await swap();
        this.#isRefused = false;
        return done;
      } catch (error) {
        this.#isRefused = error instanceof IdallocError && error.code === 'ETCD_REFUSED';
        throw error;
      }
    };
    if (!this.#isRefused) return await attempt();
    return await this.#probes.run(async () => {
      if (this.#isRefused) await this.#options.runtime.sleep(REFUSED_REST_MS);
      return await attempt();
    });
  }

  /** New numbers of a sequence show that it goes on. */
  #noteStopped(part: NumbersPart, { stopped }: PartitionNumbers): void {
    for (const [{ sequence }, decision] of part.decided()) {
      if (decision.kind === 'refused' && decision.code === 'SEQUENCE_STOPPED') {
        stopped.add(sequence);
        this.#options.observe.stopped(part.partition, sequence);
      } else if (decision.kind === 'batch' && !decision.replayed) stopped.delete(sequence);
    }
  }

  #placeOf(partition: number): PartitionNumbers {
    const found = this.#places.get(partition);
    if (found !== undefined) return found;
    const place: PartitionNumbers = {
      known: undefined,
      ownRevision: undefined,
      stated: undefined,
      term: 0,
      mutex: new Mutex(),
      parts: 0,
      stopped: new Set(),
    };
    this.#places.set(partition, place);
    return place;
  }
}

function overtaken(partition: number, what: string): IdallocError {
  const message = `other writers of ledger partition ${partition} were first each time that ${what}: this is tried again; two workers may both serve the partition for a moment`;
  return new IdallocError('OVERTAKEN', message);
}

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
class PartitionLosses {
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
    const keys = numbers.flatMap(({ sequence, key }) => (names.has(sequence) ? { key: EntryKey.of(key) } : []));
    const found = await this.#deps.ledger.decided(this.#partition, keys);
    return ({ key, entry, sequence }) => {
      const decided = found.get(EntryKey.of(key).name);
      if (!names.has(sequence)) return entry.first;
      return typeof decided === 'object' && decided.entry.kind === 'numbers' ? decided.entry.first : undefined;
    };
  }
}
