import type { Runtime } from '../async/runtime.ts';
import {
  decodePending,
  decodeSequenceHead,
  encodePending,
  encodeSequenceHead,
  type Pending,
  type PendingValue,
  type SequenceHead,
} from '../codec/head-values.ts';
import { IdallocError } from '../errors.ts';
import {
  type Compare,
  type EtcdPort,
  type KeyOperation,
  type KeyValue,
  MAX_OPERATIONS,
  pagesOf,
} from '../identity/identity-ports.ts';

/** What etcd holds of the sequences of a ledger partition, as it was at one revision. */
export interface Head extends Omit<PendingValue, 'records'> {
  /** The revision of `pending`; 0n while nothing was ever swapped in. */
  readonly revision: bigint;
  readonly pending: readonly Pending[];
  /** The heads of those sequences that were read and that etcd knows. */
  readonly sequences: ReadonlyMap<string, SequenceHead>;
  /** The sequences that were read. */
  readonly names: ReadonlySet<string>;
}

/** What a swap writes. */
export interface HeadChange extends Omit<PendingValue, 'records'> {
  readonly pending: readonly Pending[];
  /** The heads that change, by the names of their sequences. */
  readonly sequences: ReadonlyMap<string, SequenceHead>;
}

/**
 * The heads in etcd: which numbers were given out, and which decisions the log may not show yet. All that is written of
 * a partition is written together with its `pending`, whose revision tells whether anything changed.
 */
export interface LedgerHeads {
  /**
   * Linearizable: what is pending in a partition, and the heads of these sequences and of all that are pending, at one
   * revision. Rejects with ETCD_UNAVAILABLE, ETCD_REFUSED or NAMESPACE_DAMAGED.
   */
  read(partition: number, names: Iterable<string>): Promise<Head>;
  /** As `read`, for all sequences that etcd knows in the partition. They are read in pages that fit into one answer. */
  readAll(partition: number): Promise<Head>;
  /**
   * Writes the change if nothing was swapped in since `head` was read. Resolves the new head, or undefined if something
   * was: or this change itself, when the call was sent twice. Rejects with ETCD_UNAVAILABLE when it is unknown whether
   * it was written, or will be; with ETCD_REFUSED when it will not be later. In all cases but a new head, the head is
   * read again.
   */
  swap(partition: number, head: Head, change: HeadChange): Promise<Head | undefined>;
}

/** The keys of one partition. */
interface Keys {
  readonly pending: string;
  /** What the keys of sequences begin with. */
  readonly sequences: string;
  sequence(name: string): string;
}

export interface EtcdHeadsOptions {
  readonly etcd: Pick<EtcdPort, 'get' | 'range' | 'transact'>;
  /** What swaps are sent through; by default each is a transaction of its own. */
  readonly transactions?: Transactions;
  readonly keysOf: (partition: number) => Keys;
}

/** Keys in one read of etcd, without `pending`. */
const NAMES_AT_ONCE = MAX_OPERATIONS - 1;
/** Heads in one page: less than 1 MB of the 4 MB that gRPC takes in one answer, with the largest names and formats. */
const PAGE = 1_000;
/** A look reads so often at most: fewer swaps of other workers come between its reads. */
const MAX_READS = 10;

export class EtcdHeads implements LedgerHeads {
  readonly #etcd: EtcdHeadsOptions['etcd'];
  readonly #transactions: Transactions;
  readonly #keysOf: EtcdHeadsOptions['keysOf'];

  constructor({ etcd, transactions = etcd, keysOf }: EtcdHeadsOptions) {
    this.#etcd = etcd;
    this.#transactions = transactions;
    this.#keysOf = keysOf;
  }

  async read(partition: number, names: Iterable<string>): Promise<Head> {
    const keys = this.#keysOf(partition);
    const wanted = new Set(names);
    let all = wanted;
    for (let reads = 0; reads < MAX_READS; reads += 1) {
      const found = await this.#readTogether(keys, all);
      if (found === undefined) continue;
      const head = headOf(keys, found, all);
      const lacking = head.pending.some(({ sequence }) => !all.has(sequence));
      if (!lacking) return head;
      all = new Set([...wanted, ...head.pending.map(({ sequence }) => sequence)]);
    }
    throw changing(partition);
  }

  async readAll(partition: number): Promise<Head> {
    const keys = this.#keysOf(partition);
    for (let reads = 0; reads < MAX_READS; reads += 1) {
      const before = (await this.#etcd.get([keys.pending])).get(keys.pending);
      const found = new Map<string, KeyValue>();
      for await (const kv of pagesOf(this.#etcd, keys.sequences, PAGE)) found.set(kv.key, kv);
      const after = (await this.#etcd.get([keys.pending])).get(keys.pending);
      if (!isSame(before, after)) continue;
      const names = new Set([...found.keys()].map((key) => key.slice(keys.sequences.length)));
      if (after !== undefined) found.set(keys.pending, after);
      return headOf(keys, found, names);
    }
    throw changing(partition);
  }

  /**
   * Reads these keys at one revision of `pending`, without which none of them changes; undefined if it changed
   * meanwhile.
   */
  async #readTogether(keys: Keys, names: ReadonlySet<string>): Promise<ReadonlyMap<string, KeyValue> | undefined> {
    const all = [...names].map(keys.sequence);
    const found = new Map<string, KeyValue>();
    let first: KeyValue | undefined;
    for (let from = 0; from === 0 || from < all.length; from += NAMES_AT_ONCE) {
      const part = await this.#etcd.get([keys.pending, ...all.slice(from, from + NAMES_AT_ONCE)]);
      const pending = part.get(keys.pending);
      if (from > 0 && !isSame(pending, first)) return undefined;
      first = pending;
      for (const [key, kv] of part) found.set(key, kv);
    }
    return found;
  }

  async swap(partition: number, head: Head, change: HeadChange): Promise<Head | undefined> {
    const keys = this.#keysOf(partition);
    const { namespace, through, pending, sequences } = change;
    const puts = [...sequences].map(([name, known]) => ({
      put: keys.sequence(name),
      value: encodeSequenceHead(known),
    }));
    const { succeeded, revision } = await this.#transactions.transact(
      [{ key: keys.pending, modRevision: head.revision }],
      [{ put: keys.pending, value: encodePending({ namespace, through, records: pending }) }, ...puts],
    );
    if (!succeeded) return undefined;
    return {
      revision,
      namespace,
      through,
      pending,
      sequences: new Map([...head.sequences, ...sequences]),
      names: new Set([...head.names, ...sequences.keys()]),
    };
  }
}

/** All that is known of a partition: the heads of other sequences stay known while nothing was swapped in. */
export function joined(known: Head | undefined, read: Head): Head {
  if (known?.revision !== read.revision) return read;
  return {
    ...read,
    sequences: new Map([...known.sequences, ...read.sequences]),
    names: new Set([...known.names, ...read.names]),
  };
}

function changing(partition: number): IdallocError {
  const message = `the heads of ledger partition ${partition} changed during each of ${MAX_READS} reads: another worker serves it as well`;
  return new IdallocError('ETCD_UNAVAILABLE', message);
}

/** A restored etcd repeats revisions, so the value is compared as well. */
function isSame(one: KeyValue | undefined, other: KeyValue | undefined): boolean {
  if (one === undefined || other === undefined) return one === other;
  return one.modRevision === other.modRevision && one.value.equals(other.value);
}

function headOf(keys: Keys, found: ReadonlyMap<string, KeyValue>, names: ReadonlySet<string>): Head {
  const stored = found.get(keys.pending);
  const value = stored && decodePending(stored.value, keys.pending);
  const sequences = new Map<string, SequenceHead>();
  for (const name of names) {
    const key = keys.sequence(name);
    const kv = found.get(key);
    if (kv !== undefined) sequences.set(name, decodeSequenceHead(kv.value, key));
  }
  return {
    revision: stored?.modRevision ?? 0n,
    namespace: value?.namespace ?? '',
    through: value?.through ?? -1,
    pending: value?.records ?? [],
    sequences,
    names,
  };
}

type Transactions = Pick<EtcdPort, 'transact'>;
type Outcome = Awaited<ReturnType<EtcdPort['transact']>>;

/** A transaction that waits for others to go with it. */
interface WaitingSwap {
  readonly compares: readonly Compare[];
  readonly operations: readonly KeyOperation[];
  readonly bytes: number;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
}

/** A transaction takes so much of the 1.5 MiB that etcd allows in one request. A swap that has more goes alone. */
const MAX_BYTES = 1_000_000;
/** What an operation takes beside its key and its value, at most. */
const OVERHEAD_BYTES = 32;
/**
 * From one round to the next. etcd may share its cores and its disk with others, so it is asked less often than it
 * could answer.
 */
const GAP_MS = 5;

/**
 * Transactions of etcd that have no key in common, made in one. Its members agree on each and sync it to their disks,
 * which costs as much as fifty more keys in it. A round takes all that arrived during the one before; what does not fit
 * into one transaction goes beside it. So a transaction that etcd does not answer holds up those that arrive meanwhile
 * for as long as a call may take, or twice as long if it was refused before. They go to the same etcd.
 *
 * Everything is compared together, so one that is outdated refuses those that share its transaction. Then each is tried
 * alone: a shared one that was refused and still takes effect, since it was sent twice, refuses that in turn, as a
 * repeated call of its own would.
 */
export class SharedTransactions implements Transactions {
  readonly #etcd: Transactions;
  readonly #runtime: Pick<Runtime, 'monotonicMs' | 'nextTurn' | 'sleep'>;
  #waiting: readonly WaitingSwap[] = [];
  #isGoing = false;
  #begunMs = Number.NEGATIVE_INFINITY;

  constructor(etcd: Transactions, runtime: Pick<Runtime, 'monotonicMs' | 'nextTurn' | 'sleep'>) {
    this.#etcd = etcd;
    this.#runtime = runtime;
  }

  transact(compares: readonly Compare[], operations: readonly KeyOperation[]): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      const bytes = operations.reduce((sum, operation) => sum + sizeOf(operation), 0);
      this.#waiting = [...this.#waiting, { compares, operations, bytes, resolve, reject }];
      if (this.#isGoing) return;
      this.#isGoing = true;
      void this.#go();
    });
  }

  async #go(): Promise<void> {
    const runtime = this.#runtime;
    while (this.#waiting.length > 0) {
      await runtime.nextTurn(); // what arrives together goes together
      const restMs = this.#begunMs + GAP_MS - runtime.monotonicMs();
      if (restMs > 0) await runtime.sleep(restMs);
      this.#begunMs = runtime.monotonicMs();
      const round = together(this.#waiting);
      this.#waiting = [];
      await Promise.all(round.map((some) => this.#send(some)));
    }
    this.#isGoing = false;
  }

  /** Settles them; never rejects. */
  async #send(some: readonly WaitingSwap[]): Promise<void> {
    try {
      const compares = some.flatMap((one) => one.compares);
      const operations = some.flatMap((one) => one.operations);
      const outcome = await this.#etcd.transact(compares, operations);
      if (!outcome.succeeded && some.length > 1) await Promise.all(some.map((one) => this.#send([one])));
      else for (const { resolve } of some) resolve(outcome);
    } catch (error) {
      for (const { reject } of some) reject(error);
    }
  }
}

/** In their order, as many in each transaction as fit. etcd takes no key twice in one. */
function together(waiting: readonly WaitingSwap[]): readonly (readonly WaitingSwap[])[] {
  const all: WaitingSwap[][] = [];
  const keys = new Set<string>();
  let [operations, bytes] = [0, 0];
  for (const one of waiting) {
    operations += Math.max(one.operations.length, one.compares.length);
    bytes += one.bytes;
    const last = all.at(-1);
    const own = one.operations.map(keyOf);
    if (last !== undefined && operations <= MAX_OPERATIONS && bytes <= MAX_BYTES && !own.some((key) => keys.has(key))) {
      last.push(one);
    } else {
      all.push([one]);
      keys.clear();
      [operations, bytes] = [Math.max(one.operations.length, one.compares.length), one.bytes];
    }
    for (const key of own) keys.add(key);
  }
  return all;
}

function keyOf(operation: KeyOperation): string {
  return 'put' in operation ? operation.put : operation.delete;
}

function sizeOf(operation: KeyOperation): number {
  return OVERHEAD_BYTES + keyOf(operation).length + ('put' in operation ? operation.value.length : 0);
}
