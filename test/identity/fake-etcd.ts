import { IdallocError } from '../../src/errors.ts';
import type { Compare, EtcdPort, KeyOperation, KeyPage, KeyValue } from '../../src/identity/identity-ports.ts';

interface Lease {
  readonly ttlMs: number;
  expiresAtMs: number;
}

/**
 * What the network does to one call:
 *
 * - pass:          the request arrives and the answer comes back
 * - request lost:  the server never sees it
 * - answer lost:   it takes effect, and the caller gets no answer
 * - late:          the caller gives up; it takes effect whenever deliverLate is called
 * - doubled:       it is served, and a second copy takes effect whenever deliverLate is called
 * - asked twice:   two copies take effect at once, and the caller gets the second one's answer (as with hedged calls)
 */
export type Fault = 'pass' | 'request lost' | 'answer lost' | 'late' | 'doubled' | 'asked twice';

type CallName = keyof EtcdPort;

/** Decides the fault of each call as it is sent; may delay the request (until it resolves) and the answer (`back`). */
export type Link = (name: CallName) => Promise<{ fault: Fault; back?: Promise<void> }>;

export const goodLink: Link = async () => ({ fault: 'pass' });

/**
 * etcd in memory: one revision for each transaction that writes, create and mod revisions, leases that expire by the
 * given clock and take their keys along. Every operation is atomic and synchronous; delays and losses happen in the
 * link.
 */
export class FakeEtcd {
  readonly #nowMs: () => number;
  readonly #kvs = new Map<string, KeyValue>();
  readonly #leases = new Map<bigint, Lease>();
  readonly #late: Array<() => unknown> = [];
  /** Whether puts and grants are refused; the last one before that is applied, and refused as well. */
  #space: 'free' | 'last' | 'none' = 'free';
  #revision = 1n;
  /** Called after each put, with the previous value. */
  onPut: (now: KeyValue, before: KeyValue | undefined) => void = () => {};
  /** Called after each deletion, whatever its cause, with the deleted value. */
  onDelete: (before: KeyValue) => void = () => {};

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  get revision(): bigint {
    return this.#revision;
  }

  get lateCount(): number {
    return this.#late.length;
  }

  /** Lets the copy of a late or doubled request with this index take effect now. */
  deliverLate(index = 0): void {
    const [copy] = this.#late.splice(index, 1);
    if (copy) ignoreErrors(copy);
  }

  peek(key: string): KeyValue | undefined {
    this.#expire();
    return this.#kvs.get(key);
  }

  /** Changes a key as a careless operator would. */
  tamper(key: string, value: Buffer | undefined): void {
    this.#transact([], [value === undefined ? { delete: key } : { put: key, value }]);
  }

  /**
   * Reaches the quota, so that puts and grants are refused until `free`; everything else is served. With `appliesOne`
   * the next write is applied and refused: etcd does so with the one that it finds too large only when it applies it.
   */
  fill(appliesOne = false): void {
    this.#space = appliesOne ? 'last' : 'none';
  }

  free(): void {
    this.#space = 'free';
  }

  /** Saves the present state; the returned function restores it, revision included, with leases that start anew. */
  backUp(): () => void {
    const [kvs, leases, revision] = [[...this.#kvs], [...this.#leases], this.#revision];
    return () => {
      this.wipe();
      for (const [key, kv] of kvs) this.#kvs.set(key, kv);
      for (const [id, { ttlMs }] of leases) this.#leases.set(id, { ttlMs, expiresAtMs: this.#nowMs() + ttlMs });
      this.#revision = revision;
    };
  }

  /** Deletes everything, without calls of onDelete, like a start on an empty disk. */
  wipe(): void {
    this.#kvs.clear();
    this.#leases.clear();
    this.#revision = 1n;
  }

  range(prefix: string, page?: KeyPage): { revision: bigint; kvs: readonly KeyValue[] } {
    this.#expire();
    const order = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b));
    const found = [...this.#kvs.values()]
      .filter(({ key }) => key.startsWith(prefix) && order(key, page?.from ?? prefix) >= 0)
      .sort((a, b) => order(a.key, b.key));
    return { revision: this.#revision, kvs: found.slice(0, page?.limit) };
  }

  get(keys: readonly string[]): ReadonlyMap<string, KeyValue> {
    this.#expire();
    if (keys.length > 128) throw new RangeError('too many operations in txn request');
    return new Map(keys.flatMap((key) => this.#kvs.get(key) ?? []).map((kv) => [kv.key, kv]));
  }

  transact(
    compares: readonly Compare[],
    operations: readonly KeyOperation[],
  ): { succeeded: boolean; revision: bigint } {
    const write = () => this.#transact(compares, operations);
    return operations.some((operation) => 'put' in operation) ? this.#inSpace(write) : write();
  }

  #inSpace<R>(write: () => R): R {
    const space = this.#space;
    if (space === 'free') return write();
    if (space === 'last') {
      this.#space = 'none';
      write();
    }
    throw new IdallocError('ETCD_REFUSED', 'etcdserver: mvcc: database space exceeded');
  }

  #transact(
    compares: readonly Compare[],
    operations: readonly KeyOperation[],
  ): { succeeded: boolean; revision: bigint } {
    this.#expire();
    if (Math.max(compares.length, operations.length) > 128) throw new RangeError('too many operations in txn request');
    const keys = operations.map((operation) => ('put' in operation ? operation.put : operation.delete));
    if (new Set(keys).size < keys.length) throw new RangeError('duplicate key given in txn request');
    if (!compares.every((compare) => this.#holds(compare))) return { succeeded: false, revision: this.#revision };
    for (const operation of operations) {
      if ('put' in operation && operation.leaseId && !this.#leases.has(operation.leaseId)) {
        throw new IdallocError('ETCD_REFUSED', 'requested lease not found');
      }
    }
    const next = this.#revision + 1n;
    const written = operations.map((operation) => this.#apply(operation, next));
    if (written.includes(true)) this.#revision = next;
    return { succeeded: true, revision: this.#revision };
  }

  grantLease(leaseId: bigint, ttlSeconds: number): void {
    this.#expire();
    this.#inSpace(() => {
      if (this.#leases.has(leaseId)) return;
      this.#leases.set(leaseId, { ttlMs: ttlSeconds * 1000, expiresAtMs: this.#nowMs() + ttlSeconds * 1000 });
    });
  }

  keepAlive(leaseId: bigint): { ttlSeconds: number } {
    this.#expire();
    const lease = this.#leases.get(leaseId);
    if (!lease) return { ttlSeconds: 0 };
    lease.expiresAtMs = this.#nowMs() + lease.ttlMs;
    return { ttlSeconds: lease.ttlMs / 1000 };
  }

  revokeLease(leaseId: bigint): void {
    this.#expire();
    this.#end(leaseId);
  }

  /** A client of this server, with its own link. */
  port(link: Link = goodLink): EtcdPort {
    const call = async <R>(name: CallName, effect: () => R): Promise<R> => {
      const { fault, back } = await link(name);
      const answer = this.#serve(fault, effect);
      if (back !== undefined) await back;
      if (answer.lost) throw new IdallocError('ETCD_UNAVAILABLE', `no answer to ${name} (${fault})`);
      return answer.value();
    };
    return {
      range: (prefix, page) => call('range', () => this.range(prefix, page)),
      get: (keys) => call('get', () => this.get(keys)),
      transact: (compares, operations) => call('transact', () => this.transact(compares, operations)),
      grantLease: (leaseId, ttlSeconds) => call('grantLease', () => this.grantLease(leaseId, ttlSeconds)),
      keepAlive: (leaseId) => call('keepAlive', () => this.keepAlive(leaseId)),
      revokeLease: (leaseId) => call('revokeLease', () => this.revokeLease(leaseId)),
    };
  }

  #serve<R>(fault: Fault, effect: () => R): { lost: boolean; value: () => R } {
    const lost = { lost: true, value: effect };
    if (fault === 'request lost') return lost;
    if (fault === 'late') {
      this.#late.push(effect);
      return lost;
    }
    if (fault === 'answer lost') {
      ignoreErrors(effect);
      return lost;
    }
    if (fault === 'doubled') this.#late.push(effect);
    if (fault === 'asked twice') ignoreErrors(effect);
    return { lost: false, value: outcomeOf(effect) };
  }

  #holds(compare: Compare): boolean {
    const kv = this.#kvs.get(compare.key);
    if ('createRevision' in compare) return (kv?.createRevision ?? 0n) === compare.createRevision;
    if ('modRevision' in compare) return (kv?.modRevision ?? 0n) === compare.modRevision;
    return kv?.value.equals(compare.value) ?? false;
  }

  #apply(operation: KeyOperation, revision: bigint): boolean {
    if ('delete' in operation) return this.#delete(operation.delete);
    const before = this.#kvs.get(operation.put);
    const now: KeyValue = {
      key: operation.put,
      value: Buffer.from(operation.value),
      createRevision: before?.createRevision ?? revision,
      modRevision: revision,
      leaseId: operation.leaseId ?? 0n,
    };
    this.#kvs.set(now.key, now);
    this.onPut(now, before);
    return true;
  }

  #expire(): void {
    for (const [leaseId, lease] of this.#leases) {
      if (lease.expiresAtMs <= this.#nowMs()) this.#end(leaseId);
    }
  }

  #end(leaseId: bigint): void {
    if (!this.#leases.delete(leaseId)) return;
    const keys = [...this.#kvs.values()].filter((kv) => kv.leaseId === leaseId).map(({ key }) => key);
    for (const key of keys) this.#delete(key);
    if (keys.length > 0) this.#revision += 1n;
  }

  #delete(key: string): boolean {
    const before = this.#kvs.get(key);
    if (before === undefined) return false;
    this.#kvs.delete(key);
    this.onDelete(before);
    return true;
  }
}

/** Runs the effect now; returns a function that returns its value or throws its error. */
function outcomeOf<R>(effect: () => R): () => R {
  try {
    const value = effect();
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

/** Runs the effect of a copy whose answer is lost. */
function ignoreErrors(effect: () => unknown): void {
  outcomeOf(effect);
}
