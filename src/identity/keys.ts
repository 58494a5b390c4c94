/**
 * Where one datacenter's namespace lies in etcd:
 *
 *   <prefix>/datacenter/<dc>/workers/<id>    the owner: a lease record, under the owner's lease
 *   <prefix>/datacenter/<dc>/ceilings/<id>   the ceiling, under no lease, never falling
 *   <prefix>/datacenter/<dc>/descriptor      says that all ceilings exist, and what they count
 *
 * Beside it, since each acquire reads the namespace as a whole: <prefix>/ledger/<dc>/, what etcd remembers of the ledgers.
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
