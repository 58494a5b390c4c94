import { type EtcdClient, withEtcd } from '../../adapters/etcd/etcd.ts';
import { type EtcdStatus, etcdStatus } from '../../adapters/etcd/member.ts';
import { ALARM_REMEDIES, isDenied } from '../../adapters/etcd/refusal.ts';
import { compareDescriptors, decodeDescriptor, descriptorOf } from '../../codec/namespace-values.ts';
import type { WitnessView } from '../../codec/witness.ts';
import type { Config } from '../../config/config.ts';
import { describeError } from '../../errors.ts';
import { bindingConflicts, bindingsOf, boundCluster } from '../../identity/bindings.ts';
import type { EtcdPort } from '../../identity/identity-ports.ts';
import { ledgersRoot, namespaceKeys, readSnapshot, type Snapshot } from '../../identity/keys.ts';
import type { CliContext } from '../context.ts';
import { viewNamespace } from '../leases-run.ts';
import { acquireRefusal } from '../namespace/found.ts';
import { counted, spanText } from '../output.ts';
import { type Check, fault, ok, TIMEOUT_MS, unreachableServer, warn } from './checks.ts';
import type { KafkaFindings } from './kafka.ts';
import { checkClock } from './machine.ts';

/** Checks each endpoint, then the namespace, which is read after the witness topic. */
export async function checkEtcd(
  { now }: CliContext,
  config: Config,
  kafka: Promise<Pick<KafkaFindings, 'witnessed' | 'clusterId'>>,
): Promise<Check[]> {
  const { endpoints } = config.etcd;
  const each = await Promise.all(
    endpoints.map(async (endpoint) => {
      try {
        const [status, clock] = await Promise.all([
          etcdStatus(endpoint, config.etcd, TIMEOUT_MS),
          checkClock(endpoint, config.etcd.tls, TIMEOUT_MS, now),
        ]);
        return [judgeEtcd(endpoint, status, config.etcd.quotaBytes), clock];
      } catch (error) {
        return [unreachableServer(`etcd ${endpoint}`, describeError(error), 'ETCD_ENDPOINTS (or ETCD_USERNAME)')];
      }
    }),
  );
  const checks = [...each.flat(), judgeEtcdSize(endpoints.length)];
  if (each.every(([first]) => first?.state === 'fault')) return checks;
  const found = await kafka;
  return await withEtcd(config.etcd, async (etcd) => [
    ...checks,
    await checkWrites(etcd, config),
    await checkCompaction(etcd, config),
    await checkNamespace(etcd, config, found, now()),
  ]);
}

/** Later than every key, so that a write that compares it never takes effect. */
const NO_REVISION = 2n ** 63n - 1n;

/** Sends a write that never takes effect: etcd looks for space and for the user's rights before it compares. */
async function checkWrites(etcd: EtcdPort, config: Config): Promise<Check> {
  const keys = namespaceKeys(config.etcd.prefix, config.datacenterId);
  const ledgers = ledgersRoot(config.etcd.prefix, config.datacenterId);
  const written = [keys.descriptor, ledgers, bindingsOf(keys, config).claim.key];
  const puts = written.map((key) => ({ put: key, value: Buffer.alloc(0) }));
  try {
    await etcd.transact([{ key: keys.descriptor, modRevision: NO_REVISION }], puts);
    return ok('etcd writes', `a worker may write below ${keys.root} and ${ledgers}`);
  } catch (error) {
    if (isDenied(error)) {
      const unknown = "whether etcd takes writes can't be known: this login may not write";
      return warn('etcd writes', unknown, "run doctor with the workers' login");
    }
    return fault('etcd writes', describeError(error), 'see the message; no worker gets a reservation in this state');
  }
}

/** Each draft of a sequence makes a revision, whose keys etcd keeps until it is compacted. */
async function checkCompaction(etcd: EtcdClient, config: Config): Promise<Check> {
  const { descriptor } = namespaceKeys(config.etcd.prefix, config.datacenterId);
  try {
    const { revision } = await etcd.range(descriptor);
    const [first, many] = await Promise.all([
      revision > FEW_REVISIONS && etcd.keeps(descriptor, 2n),
      revision > MANY_REVISIONS && etcd.keeps(descriptor, revision - MANY_REVISIONS),
    ]);
    return judgeCompaction(revision, { first, many });
  } catch (error) {
    return fault('etcd compaction', describeError(error), 'see the message');
  }
}

async function checkNamespace(
  etcd: EtcdPort,
  config: Config,
  { witnessed: view, clusterId }: Pick<KafkaFindings, 'witnessed' | 'clusterId'>,
  nowMs: number,
): Promise<Check> {
  const keys = namespaceKeys(config.etcd.prefix, config.datacenterId);
  try {
    const bindings = bindingsOf(keys, { ...config, clusterId });
    const refusals = await bindingConflicts(etcd, bindings);
    const bound = await boundCluster(etcd, bindings);
    if (bound !== undefined && bound.id !== clusterId) return judgeCluster(bound.id, clusterId ?? '');
    return judgeNamespace(config, { snapshot: await readSnapshot(etcd, keys), view, refusals }, nowMs);
  } catch (error) {
    return fault(NAMESPACE, describeError(error), 'see the message; no worker allocates in this state');
  }
}

const ETCD_SLOW_MS = 1_000;
/** The share of its quota up to which a database of etcd is not reported. */
const ETCD_LARGE_SHARE = 0.75;

export function judgeEtcd(endpoint: string, facts: EtcdStatus, quotaBytes: number): Check {
  const name = `etcd ${endpoint}`;
  const role = facts.isLeader ? 'leader' : 'follower';
  const detail = `etcd ${facts.version}, ${role}, ${Math.round(facts.dbBytes / 2 ** 20)} MiB, ${spanText(facts.latencyMs)}`;
  if (!facts.hasLeader) return fault(name, `${detail}; it has no leader`, 'start members until a majority runs');
  if (facts.alarms.length > 0) {
    const fix = facts.alarms.map((alarm) => ALARM_REMEDIES[alarm]).join('; ');
    return fault(name, `${detail}; it refuses writes: alarm ${facts.alarms.join(', ')}`, fix);
  }
  if (!/^3\.([5-9]|\d\d)\./.test(facts.version) && !/^([4-9]|\d\d)\./.test(facts.version)) {
    return warn(name, detail, 'run etcd 3.5 or later');
  }
  if (facts.dbBytes > ETCD_LARGE_SHARE * quotaBytes) {
    const share = Math.round((100 * facts.dbBytes) / quotaBytes);
    return warn(
      name,
      `${detail}, ${share} % of ETCD_QUOTA_BYTES`,
      'compact and defragment it before it refuses writes',
    );
  }
  if (facts.latencyMs > ETCD_SLOW_MS)
    return warn(name, detail, 'check its disk: a lease needs responses within seconds');
  return ok(name, detail);
}

/** So few revisions may be all that there ever were, and cost nothing. */
const FEW_REVISIONS = 10_000n;
/** Sequences in use make up to a hundred revisions a second; this many are some hours of them. */
const MANY_REVISIONS = 1_000_000n;
const COMPACT = 'run each etcd member with --auto-compaction-mode=periodic --auto-compaction-retention=5m';

/** Whether etcd compacts by itself, judged by what it still has of the past: its API does not show its settings. */
export function judgeCompaction(revision: bigint, keeps: { readonly first: boolean; readonly many: boolean }): Check {
  const name = 'etcd compaction';
  if (revision <= FEW_REVISIONS) return ok(name, `only ${revision} revisions so far: too few to judge`);
  if (keeps.first)
    return warn(name, `etcd keeps all of its ${revision} revisions: nothing was ever compacted`, COMPACT);
  if (!keeps.many) return ok(name, `at revision ${revision}, of which the old ones are compacted`);
  return warn(name, `etcd keeps more than ${MANY_REVISIONS} old revisions`, COMPACT);
}

/** A cluster of fewer than three members can't lose one. */
export function judgeEtcdSize(endpoints: number): Check {
  if (endpoints >= 3) return ok('etcd size', counted(endpoints, 'endpoint'));
  return warn(
    'etcd size',
    counted(endpoints, 'endpoint'),
    'for production: three members, all of them in ETCD_ENDPOINTS',
  );
}

const NAMESPACE = 'namespace';
const REBUILD =
  "stop the workers of this datacenter that still serve, then run 'idalloc namespace rebuild'; if workers with another " +
  'etcd serve it, use another DATACENTER_ID instead';
const CONFIGURE =
  'configure what is stored (LAYOUT, LAYOUT_EPOCH_MS and the other LAYOUT_*, POOL_*), or use another DATACENTER_ID';

export interface NamespaceFound {
  readonly snapshot: Snapshot;
  /** The witnesses, read before etcd; undefined when the witness topic could not be read. */
  readonly view: WitnessView | undefined;
  /** Why the bindings in etcd exclude these workers. */
  readonly refusals: readonly string[];
}

/** Brokers of another cluster than the one that is bound. */
function judgeCluster(bound: string, found: string): Check {
  const detail = `CLUSTER_CHANGED: the ledger is bound to the Kafka cluster ${bound}, but these brokers belong to ${found}`;
  const fix = "correct KAFKA_BROKERS; or if this cluster replaces the other one, run 'idalloc namespace adopt-cluster'";
  return fault(NAMESPACE, detail, fix);
}

/** The namespace in etcd, as a worker would judge it. */
export function judgeNamespace(config: Config, { snapshot, view, refusals }: NamespaceFound, nowMs: number): Check {
  const { root } = namespaceKeys(config.etcd.prefix, config.datacenterId);
  if (refusals.length > 0) {
    return fault(
      NAMESPACE,
      refusals.join(' '),
      'configure what is bound, or create a namespace under another DATACENTER_ID',
    );
  }
  const differing = differences(config, snapshot);
  if (differing !== undefined) return fault(NAMESPACE, `${root}: ${differing}`, CONFIGURE);
  const refusal = view && acquireRefusal(config, snapshot, view, refusals);
  const fix = refusal?.code === 'NAMESPACE_MISMATCH' ? CONFIGURE : REBUILD;
  if (refusal !== undefined) return fault(NAMESPACE, describeError(refusal), fix);
  const found = describe(root, snapshot, nowMs);
  if (found.missing > 0) return fault(NAMESPACE, `${found.missing} ceilings are missing below ${root}`, REBUILD);
  if (view !== undefined) return ok(NAMESPACE, found.text);
  const unread = `${found.text}; not compared with the witness topic, which could not be read`;
  return warn(NAMESPACE, unread, 'make the witness topic readable: it shows whether etcd was rolled back');
}

function differences(config: Config, { descriptor }: Snapshot): string | undefined {
  if (descriptor === undefined) return undefined;
  const stored = decodeDescriptor(descriptor.value);
  const differing = compareDescriptors(stored, descriptorOf(config, stored.uuid));
  if (differing.length === 0) return undefined;
  return differing.map((one) => `${one.field} is ${one.stored}, configured ${one.wanted}`).join('; ');
}

function describe(
  root: string,
  snapshot: Snapshot,
  nowMs: number,
): { readonly text: string; readonly missing: number } {
  if (snapshot.descriptor === undefined) {
    return { text: `${root} does not exist yet: the first worker creates it`, missing: 0 };
  }
  const { layout, leases } = viewNamespace(root, snapshot, nowMs, { all: true });
  const held = leases.filter(({ holder }) => holder !== null).length;
  const missing = leases.filter(({ worker_id }) => !snapshot.ceilings.has(worker_id)).length;
  return { text: `${root}: layout ${layout}, ${held} of ${leases.length} worker IDs held`, missing };
}
