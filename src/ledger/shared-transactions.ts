import type { Runtime } from '../async/runtime.ts';
import {
  type Compare,
  type EtcdPort,
  type KeyOperation,
  MAX_OPERATIONS,
  type Page,
} from '../identity/identity-ports.ts';

type Etcd = Pick<EtcdPort, 'get' | 'range' | 'transact'>;
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
export class SharedTransactions implements Etcd {
  readonly #etcd: Etcd;
  readonly #runtime: Pick<Runtime, 'monotonicMs' | 'nextTurn' | 'sleep'>;
  #waiting: readonly WaitingSwap[] = [];
  #isGoing = false;
  #begunMs = Number.NEGATIVE_INFINITY;

  constructor(etcd: Etcd, runtime: Pick<Runtime, 'monotonicMs' | 'nextTurn' | 'sleep'>) {
    this.#etcd = etcd;
    this.#runtime = runtime;
  }

  get(keys: readonly string[]): ReturnType<Etcd['get']> {
    return this.#etcd.get(keys);
  }

  range(prefix: string, page?: Page): ReturnType<Etcd['range']> {
    return this.#etcd.range(prefix, page);
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
