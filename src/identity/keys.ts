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
