import { decodeCeiling } from '../codec/namespace-values.ts';
import type { Ticks } from '../core/units.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { EtcdPort, KeyValue } from './identity-ports.ts';

/**
 * Where one datacenter's namespace lies in etcd:
 *
 *   <prefix>/datacenter/<dc>/workers/<id>    the owner: a lease record, under the owner's lease
 *   <prefix>/datacenter/<dc>/ceilings/<id>   the ceiling, under no lease, never falling
 *   <prefix>/datacenter/<dc>/descriptor      says that all ceilings exist, and what they count
 *
 * Beside it, since each acquire reads the namespace as a whole: <prefix>/ledger/<dc>/, what etcd remembers of the
 * ledgers, and <prefix>/journal/<dc>/, the commands of operators.
 */
export interface NamespaceKeys {
  /** The common prefix of everything above, and of nothing else. */
  readonly root: string;
  readonly descriptor: string;
  owner(workerId: number): string;
  ceiling(workerId: number): string;
  /** What a key below root is; undefined for an unknown key. */
  parse(key: string): { readonly kind: 'owner' | 'ceiling'; readonly workerId: number } | undefined;
}

const LEAF = /^(workers|ceilings)\/(0|[1-9]\d{0,9})$/;

/** The keys of a datacenter; the prefix is taken as it is, such as `/keyspace`. */
export function namespaceKeys(prefix: string, datacenterId: number): NamespaceKeys {
  const root = `${prefix}/datacenter/${datacenterId}/`;
  return {
    root,
    descriptor: `${root}descriptor`,
    owner: (workerId) => `${root}workers/${workerId}`,
    ceiling: (workerId) => `${root}ceilings/${workerId}`,
    parse(key) {
      const match = key.startsWith(root) ? LEAF.exec(key.slice(root.length)) : null;
      return match ? { kind: match[1] === 'workers' ? 'owner' : 'ceiling', workerId: Number(match[2]) } : undefined;
    },
  };
}

/** The common prefix of everything that etcd remembers of a datacenter's ledgers. */
export function ledgersRoot(prefix: string, datacenterId: number): string {
  return `${prefix}/ledger/${datacenterId}/`;
}

/**
 * The journal of a datacenter:
 *
 *   <prefix>/journal/<dc>/last                the number of the last entry
 *   <prefix>/journal/<dc>/entries/<number>    an entry, its number in 16 digits, so that etcd orders them
 */
export interface JournalKeys {
  /** The common prefix of both. */
  readonly root: string;
  readonly last: string;
  /** The common prefix of the entries. */
  readonly entries: string;
  entry(number: number): string;
  /** The number in the key of an entry; undefined for another key. */
  numberOf(key: string): number | undefined;
}

const ENTRY_DIGITS = 16;

export function journalKeys(prefix: string, datacenterId: number): JournalKeys {
  const root = `${prefix}/journal/${datacenterId}/`;
  const entries = `${root}entries/`;
  return {
    root,
    last: `${root}last`,
    entries,
    entry: (number) => `${entries}${String(number).padStart(ENTRY_DIGITS, '0')}`,
    numberOf(key) {
      const digits = key.startsWith(entries) ? key.slice(entries.length) : '';
      const number = /^\d{16}$/.test(digits) ? Number(digits) : 0;
      return Number.isSafeInteger(number) && number > 0 ? number : undefined;
    },
  };
}

/** A ceiling as it is stored: the nonce identifies the last raise, the revision the state. */
export interface StoredCeiling {
  readonly ticks: Ticks;
  readonly nonce: string;
  readonly modRevision: bigint;
}

/** A namespace at one revision. */
export interface Snapshot {
  readonly descriptor: KeyValue | undefined;
  readonly owners: ReadonlyMap<number, KeyValue>;
  readonly ceilings: ReadonlyMap<number, StoredCeiling>;
}

/** Decodes a stored ceiling. Throws NAMESPACE_DAMAGED when it is unreadable: that never means "start fresh". */
export function readCeiling(kv: KeyValue): StoredCeiling {
  try {
    return { ...decodeCeiling(kv.value), modRevision: kv.modRevision };
  } catch (error) {
    throw unreadable(kv, error);
  }
}

/** All of a namespace in one read. Throws NAMESPACE_DAMAGED for an unreadable ceiling, ETCD_UNAVAILABLE. */
export async function readSnapshot(etcd: EtcdPort, keys: NamespaceKeys): Promise<Snapshot> {
  const { kvs } = await etcd.range(keys.root);
  const owners = new Map<number, KeyValue>();
  const ceilings = new Map<number, StoredCeiling>();
  for (const kv of kvs) {
    const place = keys.parse(kv.key);
    if (place?.kind === 'owner') owners.set(place.workerId, kv);
    else if (place?.kind === 'ceiling') ceilings.set(place.workerId, readCeiling(kv));
  }
  return { descriptor: kvs.find(({ key }) => key === keys.descriptor), owners, ceilings };
}

/** Throws NAMESPACE_DAMAGED when any of these workers has no ceiling. */
export function requireCeilings(snapshot: Snapshot, workerIds: readonly number[], keys: NamespaceKeys): void {
  const missing = workerIds.filter((workerId) => !snapshot.ceilings.has(workerId));
  const [first] = missing;
  if (first === undefined) return;
  throw namespaceDamaged(`${missing.length} ceilings are missing, the first is ${keys.ceiling(first)}`);
}

/** The codec's error as NAMESPACE_DAMAGED, with the key concerned. */
export function unreadable(kv: KeyValue, error: unknown): IdallocError {
  const why = error instanceof IdallocError ? error.message : describeError(error);
  return new IdallocError('NAMESPACE_DAMAGED', `${kv.key}: ${why}`, { cause: error });
}

/** NAMESPACE_DAMAGED with its remedy. */
export function namespaceDamaged(what: string): IdallocError {
  const remedy =
    "Nothing is allocated on a guess: stop all workers of this datacenter, run 'idalloc namespace rebuild', " +
    'and start them again.';
  return new IdallocError('NAMESPACE_DAMAGED', `The namespace in etcd is damaged: ${what}. ${remedy}`);
}
