import { IdallocError } from '../errors.ts';
import { type EtcdPort, type KeyValue, tryTransact } from './identity-ports.ts';
import { ledgersRoot, type NamespaceKeys } from './keys.ts';

/**
 * The bindings of a datacenter, fixed once beside its descriptor, each under a separate key:
 *
 *   /idalloc/<ID space>/datacenter/<dc>     root of the one namespace that allocates the IDs of this datacenter
 *   <root>id-space                          the ID space, and so the witness topic of this namespace
 *   <root>request-topics/<t>/partitions     partition count of a request topic
 *   <root>request-topics/<t>/ledger         its ledger
 *   <root>ledgers/<l>                       the request topic whose decisions are in this ledger
 *   <root>groups/<g>                        the request topic that this group reads
 *   <root>clusters/<l>                      the Kafka cluster that this ledger is in
 *
 * The first, the claim, lies outside the namespace: it is the only key that two namespaces share. None of them is in
 * the descriptor, whose bytes every term compares, so a second pair of topics can be added while workers serve the
 * first.
 */
interface Binding {
  readonly key: string;
  readonly value: string;
  /** The message when another value is stored: why that prevents work, and what to do. */
  readonly refusal: (stored: string) => string;
}

export interface Bindings {
  readonly claim: Binding;
  /** The partition count, which is among the own ones. */
  readonly count: Binding;
  readonly own: readonly Binding[];
  /**
   * The cluster, which is none of them: another one is CLUSTER_CHANGED, which an operator ends. Undefined if it is not
   * known.
   */
  readonly cluster: Binding | undefined;
}

/** The part of a configuration that is bound. */
export interface Bound {
  readonly idSpace: string;
  readonly datacenterId: number;
  readonly groupId: string;
  readonly topics: { readonly requests: string; readonly ledger: string; readonly requestPartitions: number };
  /** The ID of the Kafka cluster; undefined if it is not known. */
  readonly clusterId?: string | undefined;
}

/**
 * What etcd remembers of a ledger partition. The keys lie outside the namespace, which is read as a whole at each
 * acquire:
 *
 *   <prefix>/ledger/<dc>/<ledger>/<partition>/end                the partition head: how far the log had gone
 *   <prefix>/ledger/<dc>/<ledger>/<partition>/pending            the last draft of numbers and orders
 *   <prefix>/ledger/<dc>/<ledger>/<partition>/sequences/<name>   the head of a sequence
 */
export interface LedgerHeadKeys {
  readonly end: string;
  readonly pending: string;
  /** The prefix of the heads of all sequences. */
  readonly sequences: string;
  sequence(name: string): string;
}

export function ledgerHeadKeys(
  prefix: string,
  datacenterId: number,
  ledger: string,
  partition: number,
): LedgerHeadKeys {
  const root = `${ledgersRoot(prefix, datacenterId)}${ledger}/${partition}/`;
  const sequences = `${root}sequences/`;
  return { end: `${root}end`, pending: `${root}pending`, sequences, sequence: (name) => `${sequences}${name}` };
}

/** The keys of the ledger's partitions, by the number of each, as a configuration names them. */
export function headKeysOf(config: {
  readonly etcd: { readonly prefix: string };
  readonly datacenterId: number;
  readonly topics: { readonly ledger: string };
}): (partition: number) => LedgerHeadKeys {
  const { etcd, datacenterId, topics } = config;
  return (partition) => ledgerHeadKeys(etcd.prefix, datacenterId, topics.ledger, partition);
}

/** Allows for lost and repeated writes, and for lost races. */
const MAX_STEPS = 10;
/** A message shows so many characters of a foreign value. */
const MAX_SHOWN = 200;

/** The key that says which namespace owns a datacenter. */
export function claimKey(idSpace: string, datacenterId: number): string {
  return `/idalloc/${idSpace}/datacenter/${datacenterId}`;
}

export function bindingsOf({ root }: Pick<NamespaceKeys, 'root'>, bound: Bound): Bindings {
  const { idSpace, datacenterId, groupId, topics, clusterId } = bound;
  const { requests, ledger, requestPartitions } = topics;
  const claim: Binding = {
    key: claimKey(idSpace, datacenterId),
    value: root,
    refusal: (stored) =>
      `Datacenter ${datacenterId} of the ID space '${idSpace}' belongs to the namespace ${stored} of this etcd, and ` +
      `${root} would allocate the same IDs: set ETCD_PREFIX to that namespace's, or set another DATACENTER_ID.`,
  };
  const count: Binding = {
    key: `${root}request-topics/${requests}/partitions`,
    value: String(requestPartitions),
    refusal: (stored) =>
      `The request topic '${requests}' was created with ${stored} partitions, but REQUEST_PARTITIONS is ${requestPartitions}: ` +
      'the count decides which partition knows the batch of a correlation ID, so known requests would get a second one. ' +
      `Set REQUEST_PARTITIONS=${stored}. For more partitions, or after partitions were added, create a second pair of ` +
      'topics: docs/how-to/pair-of-topics.md.',
  };
  const own: readonly Binding[] = [
    {
      key: `${root}id-space`,
      value: idSpace,
      refusal: (stored) =>
        `The namespace ${root} belongs to the ID space '${stored}', but ID_SPACE is '${idSpace}': set ID_SPACE=${stored}.`,
    },
    count,
    {
      key: `${root}request-topics/${requests}/ledger`,
      value: ledger,
      refusal: (stored) =>
        `The ledger of '${requests}' is '${stored}', but LEDGER_TOPIC is '${ledger}': set LEDGER_TOPIC=${stored}.`,
    },
    {
      key: `${root}ledgers/${ledger}`,
      value: requests,
      refusal: (stored) =>
        `The ledger '${ledger}' belongs to the request topic '${stored}', not to '${requests}': set LEDGER_TOPIC to a separate ledger.`,
    },
    {
      key: `${root}groups/${groupId}`,
      value: requests,
      refusal: (stored) =>
        `The group '${groupId}' reads '${stored}', not '${requests}': set KAFKA_GROUP_ID to a separate group.`,
    },
  ];
  const cluster: Binding | undefined =
    clusterId === undefined
      ? undefined
      : {
          key: `${root}clusters/${ledger}`,
          value: clusterId,
          refusal: (stored) =>
            `The ledger '${ledger}' is in the Kafka cluster ${stored}, but these brokers belong to the cluster ${clusterId}, which may lack ` +
            "decisions: correct KAFKA_BROKERS, or if this cluster replaces the other one, run 'idalloc namespace adopt-cluster'.",
        };
  return { claim, count, own, cluster };
}

/**
 * Claims the datacenter, create-only, and writes no other binding. Rejects with NAMESPACE_MISMATCH, which lists each
 * difference, those in existing bindings included, or with CLUSTER_CHANGED, and then changes nothing; or with
 * ETCD_UNAVAILABLE.
 */
export function claimDatacenter(etcd: EtcdPort, bindings: Bindings): Promise<void> {
  return settle(etcd, bindings, [bindings.claim]);
}

/** Like claimDatacenter, but also writes the bindings that are still missing. */
export function bindNamespace(etcd: EtcdPort, bindings: Bindings): Promise<void> {
  return settle(etcd, bindings, [bindings.claim, ...bindings.own, ...(bindings.cluster ? [bindings.cluster] : [])]);
}

/** Rejects as claimDatacenter does, and writes nothing. */
export async function requireBindings(etcd: Pick<EtcdPort, 'get'>, bindings: Bindings): Promise<void> {
  requireAgreement(bindings, await etcd.get(keysOf(bindings)));
}

/** Whether the namespace has this partition count already. Rejects as claimDatacenter does, and writes nothing. */
export async function isCountBound(etcd: Pick<EtcdPort, 'get'>, bindings: Bindings): Promise<boolean> {
  const stored = await etcd.get(keysOf(bindings));
  requireAgreement(bindings, stored);
  return stored.has(bindings.count.key);
}

/**
 * The partition count that is bound to the request topic, whatever is configured; undefined before a worker has bound
 * it. Rejects with NAMESPACE_MISMATCH for a value that is no count.
 */
export async function boundCount(etcd: Pick<EtcdPort, 'get'>, { count }: Bindings): Promise<number | undefined> {
  const stored = (await etcd.get([count.key])).get(count.key)?.value.toString('utf8').slice(0, MAX_SHOWN);
  if (stored === undefined) return undefined;
  if (!/^[1-9]\d{0,8}$/.test(stored)) throw new IdallocError('NAMESPACE_MISMATCH', count.refusal(stored));
  return Number(stored);
}

/** Why these bindings conflict with the stored ones; empty when they do not. */
export async function bindingConflicts(etcd: Pick<EtcdPort, 'get'>, { claim, own }: Bindings): Promise<string[]> {
  const bindings = [claim, ...own];
  return refusalsOf(bindings, await etcd.get(bindings.map(({ key }) => key)));
}

/** The value of the binding of the cluster, with its revision; undefined before it is bound. */
export async function boundCluster(
  etcd: Pick<EtcdPort, 'get'>,
  { cluster }: Bindings,
): Promise<{ readonly id: string; readonly revision: bigint } | undefined> {
  const stored = cluster && (await etcd.get([cluster.key])).get(cluster.key);
  return stored && { id: stored.value.toString('utf8').slice(0, MAX_SHOWN), revision: stored.modRevision };
}

/** CLUSTER_CHANGED if these keys, as they are stored, bind another cluster. */
export function clusterRefusal({ cluster }: Bindings, stored: ReadonlyMap<string, KeyValue>): IdallocError | undefined {
  const [refusal] = refusalsOf(cluster === undefined ? [] : [cluster], stored);
  return refusal === undefined ? undefined : new IdallocError('CLUSTER_CHANGED', refusal);
}

/** The ledgers bound to a namespace. */
export async function boundLedgers(etcd: EtcdPort, { root }: Pick<NamespaceKeys, 'root'>): Promise<string[]> {
  const prefix = `${root}ledgers/`;
  const { kvs } = await etcd.range(prefix);
  return kvs.map(({ key }) => key.slice(prefix.length));
}

async function settle(etcd: EtcdPort, bindings: Bindings, due: readonly Binding[]): Promise<void> {
  for (let step = 0; step < MAX_STEPS; step += 1) {
    const stored = await etcd.get(keysOf(bindings));
    requireAgreement(bindings, stored);
    const missing = due.filter(({ key }) => !stored.has(key));
    if (missing.length === 0) return;
    const absent = missing.map(({ key }) => ({ key, createRevision: 0n }));
    const puts = missing.map(({ key, value }) => ({ put: key, value: Buffer.from(value) }));
    await tryTransact(etcd, absent, puts);
  }
  throw new IdallocError('ETCD_UNAVAILABLE', `the bindings of a namespace were not settled in ${MAX_STEPS} steps`);
}

function keysOf({ claim, own, cluster }: Bindings): string[] {
  return [claim, ...own, ...(cluster ? [cluster] : [])].map(({ key }) => key);
}

function requireAgreement(bindings: Bindings, stored: ReadonlyMap<string, KeyValue>): void {
  const refusals = refusalsOf([bindings.claim, ...bindings.own], stored);
  if (refusals.length > 0) throw new IdallocError('NAMESPACE_MISMATCH', refusals.join(' '));
  const changed = clusterRefusal(bindings, stored);
  if (changed !== undefined) throw changed;
}

function refusalsOf(bindings: readonly Binding[], stored: ReadonlyMap<string, KeyValue>): string[] {
  return bindings.flatMap(({ key, value, refusal }) => {
    const found = stored.get(key)?.value;
    if (found === undefined || found.equals(Buffer.from(value))) return [];
    return [refusal(found.toString('utf8').slice(0, MAX_SHOWN))];
  });
}
