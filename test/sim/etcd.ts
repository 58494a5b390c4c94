import { decodePending, decodeSequenceHead, type SequenceHead } from '../../src/codec/head-values.ts';
import { readLedgerKey } from '../../src/codec/ledger-key.ts';
import { decodeCeiling, decodeDescriptor } from '../../src/codec/namespace-values.ts';
import { tickStartMs } from '../../src/core/layout.ts';
import { IdallocError } from '../../src/errors.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import type { Compare, EtcdPort, KeyOperation, KeyValue } from '../../src/identity/identity-ports.ts';
import { FakeEtcd } from '../identity/fake-etcd.ts';
import type { HeadSeen, History } from './history.ts';
import type { Process } from './machine.ts';
import type { Network } from './network.ts';
import { FIRST, homeOf, pairOf } from './pairs.ts';
import { DATACENTER, keys, POOL, PREFIX, START_MS } from './setting.ts';
import type { World } from './world.ts';

const CALL_LIMIT_MS = 4_000;

/** The simulated etcd; each change of a ceiling is recorded in the history. */
export class Store {
  readonly #network: Network;
  readonly #world: World;
  readonly #etcd: FakeEtcd;
  /** The highest ceilings that were stored before the store was rolled back. */
  readonly #lost = new Map<number, number>();
  /** Called for each worker ID that a process takes; `restore` restores the state before that. */
  onClaim: ((process: string, restore: () => void) => void) | undefined;

  /** Called for each swap of numbers that a process sends. */
  onSwap: ((process: string) => void) | undefined;

  /** Called with the name of a process for each write that was refused for want of space. */
  onRefused: ((process: string) => void) | undefined;

  /** Whether writes of a descriptor are usually late. */
  holdsNaming = false;

  constructor(world: World, network: Network, history: History) {
    this.#world = world;
    this.#network = network;
    this.#etcd = new FakeEtcd(() => world.nowMs);
    this.#etcd.onPut = (now, before) => {
      if (isOfLedger(now.key)) history.heads.push(...headOf(world.tick(), now));
      const place = keys.parse(now.key);
      if (place?.kind !== 'ceiling') return;
      const is = decodeCeiling(now.value).ticks;
      for (const rebuild of history.rebuilds) if (rebuild.floor === is) rebuild.isWritten = true;
      if (!before) return;
      const was = decodeCeiling(before.value).ticks;
      const aheadMs = tickStartMs(world.layout, is) - START_MS - world.nowMs;
      history.ceilings.push({ workerId: place.workerId, before: was, after: is, aheadMs });
      world.note(() => `ceiling of ${place.workerId}: ${was} to ${is}`);
    };
    this.#etcd.onDelete = ({ key, value }) => {
      const place = keys.parse(key);
      if (place?.kind !== 'ceiling') return;
      const before = decodeCeiling(value).ticks;
      history.ceilings.push({ workerId: place.workerId, before, after: undefined, aheadMs: 0 });
    };
  }

  /** The highest ceiling that was ever stored; undefined if it is missing although etcd was never rolled back. */
  ceiling(workerId: number): number | undefined {
    const kv = this.#etcd.peek(keys.ceiling(workerId));
    const [stored, lost] = [kv && decodeCeiling(kv.value).ticks, this.#lost.get(workerId)];
    return stored === undefined || lost === undefined ? (stored ?? lost) : Math.max(stored, lost);
  }

  /** The UUID of the namespace, if it has one. */
  get namespace(): string | undefined {
    const kv = this.#etcd.peek(keys.descriptor);
    return kv && decodeDescriptor(kv.value).uuid;
  }

  /** What the head of a sequence says; undefined if there is none. */
  headOf(sequence: string): SequenceHead | undefined {
    const partition = homeOf(sequence, FIRST);
    const kv = this.#etcd.peek(ledgerHeadKeys(PREFIX, DATACENTER, FIRST.ledger, partition).sequence(sequence));
    return kv && decodeSequenceHead(kv.value, kv.key);
  }

  backUp(): () => void {
    return this.#etcd.backUp();
  }

  /** Restores a backup, or wipes the store. */
  setBack(restore: (() => void) | undefined): void {
    for (const { key } of this.#etcd.range(keys.root).kvs) {
      const place = keys.parse(key);
      const ticks = place?.kind === 'ceiling' ? this.ceiling(place.workerId) : undefined;
      if (place && ticks !== undefined) this.#lost.set(place.workerId, ticks);
    }
    if (restore) restore();
    else this.#etcd.wipe();
  }

  /** Refuses puts and grants until `free`. With `appliesOne` the next write is applied as well as refused. */
  fill(appliesOne: boolean): void {
    this.#etcd.fill(appliesOne);
  }

  free(): void {
    this.#etcd.free();
  }

  /** Expires the lease of some owner early. */
  expireOne(): void {
    const { first, last } = POOL;
    const pool = Array.from({ length: last - first + 1 }, (_, i) => first + i);
    const owners = pool.flatMap((workerId) => this.#etcd.peek(keys.owner(workerId)) ?? []);
    if (owners.length === 0) return;
    const { key, leaseId } = this.#world.rng.pick(owners);
    this.#world.note(() => `the lease of ${key} ends`);
    this.#etcd.revokeLease(leaseId);
  }

  /**
   * The port of one process. `renewing` is called when a renewal is sent; the function that it returns, when it is
   * answered.
   */
  port(from: Process, renewing: () => () => void): EtcdPort {
    const call = <R>(name: keyof EtcdPort, effect: () => R, heldMs?: number): Promise<R> =>
      this.#network.call(from, {
        link: 'etcd',
        name,
        effect,
        timeoutMs: CALL_LIMIT_MS,
        noAnswer: () => new IdallocError('ETCD_UNAVAILABLE', `no answer to ${name}`),
        heldMs,
      });
    const renewal = async <R>(name: keyof EtcdPort, effect: () => R): Promise<R> => {
      const answered = renewing();
      const answer = await call(name, effect);
      answered();
      return answer;
    };
    const etcd = this.#etcd;
    return {
      range: (prefix, page) => call('range', () => etcd.range(prefix, page)),
      get: (wanted) => call('get', () => etcd.get(wanted)),
      transact: (compares, operations) =>
        call('transact', () => this.#transact(from, compares, operations), this.#heldMs(operations)),
      grantLease: (leaseId, ttlSeconds) =>
        renewal('grantLease', () => this.#noting(from, () => etcd.grantLease(leaseId, ttlSeconds))),
      keepAlive: (leaseId) => renewal('keepAlive', () => etcd.keepAlive(leaseId)),
      revokeLease: (leaseId) => call('revokeLease', () => etcd.revokeLease(leaseId)),
    };
  }

  #noting<R>(from: Process, write: () => R): R {
    try {
      return write();
    } catch (error) {
      if (error instanceof IdallocError && error.code === 'ETCD_REFUSED') this.onRefused?.(from.name);
      throw error;
    }
  }

  /** The delay of a write that creates the namespace, so that another process may create it first. */
  #heldMs(operations: readonly KeyOperation[]): number | undefined {
    const { rng } = this.#world;
    const isNaming = operations.some((one) => 'put' in one && one.put === keys.descriptor);
    return isNaming && this.holdsNaming && rng.chance(0.5) ? rng.between(0, CALL_LIMIT_MS) : undefined;
  }

  #transact(from: Process, compares: readonly Compare[], operations: readonly KeyOperation[]): Transacted {
    if (operations.some((one) => 'put' in one && isOfLedger(one.put) && one.put.endsWith('/pending')))
      this.onSwap?.(from.name);
    const isClaim = operations.some((one) => 'put' in one && keys.parse(one.put)?.kind === 'owner');
    const restore = isClaim && this.onClaim !== undefined ? this.#etcd.backUp() : undefined;
    const transacted = this.#noting(from, () => this.#etcd.transact(compares, operations));
    if (transacted.succeeded && restore !== undefined) this.onClaim?.(from.name, restore);
    return transacted;
  }
}

type Transacted = ReturnType<FakeEtcd['transact']>;

const KEY = new RegExp(`^${PREFIX}/ledger/${DATACENTER}/([^/]+)/([0-9]+)/(end|pending)$`);
const [ROOT = ''] = ledgerHeadKeys(PREFIX, DATACENTER, FIRST.ledger, 0).end.split(FIRST.ledger);

/** Whether a key of etcd remembers how far a ledger had gone. */
const isOfLedger = (key: string): boolean => key.startsWith(ROOT);

/** What a write under such a key says; nothing for a head of a sequence, which is written with its `pending`. */
function headOf(order: number, { key, value }: Pick<KeyValue, 'key' | 'value'>): readonly HeadSeen[] {
  const [, ledger = '', number, what] = KEY.exec(key) ?? [];
  const pair = pairOf('ledger', ledger);
  if (pair === undefined) return [];
  const partition = pair.first + Number(number);
  if (what === 'end') {
    const { end, through } = JSON.parse(String(value)) as { readonly end: number; readonly through: number };
    return [{ order, partition, what, end, through }];
  }
  const records = decodePending(value, key).records.map((record) => {
    if (record.kind === 'order') return { sequence: record.sequence, correlationId: undefined, first: record.first };
    const read = readLedgerKey(record.key);
    const correlationId = read.kind === 'numbers' ? read.requestId.toString('latin1') : undefined;
    return { sequence: record.sequence, correlationId, first: record.entry.first };
  });
  return [{ order, partition, what: 'pending', records }];
}
