import type { EtcdClient } from '../../adapters/etcd/etcd.ts';
import { isDenied } from '../../adapters/etcd/refusal.ts';
import { etcdStatus } from '../../adapters/etcd/status.ts';
import { committedOffsets, describeGroup } from '../../adapters/kafka/consumer-group.ts';
import { type Source, type Span, wholeTopic } from '../../adapters/kafka/topics/offsets.ts';
import { readSpans, type TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { checkTopics } from '../../adapters/kafka/topics/topics.ts';
import { WitnessTable, type WitnessView } from '../../codec/witness.ts';
import type { Config } from '../../config/config.ts';
import { parseHostPort } from '../../core/host-port.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { bindingConflicts, bindingsOf, boundCluster } from '../../identity/bindings.ts';
import { ledgersRoot, namespaceKeys } from '../../identity/keys.ts';
import type { EtcdPort } from '../../identity/ports.ts';
import { readSnapshot } from '../../identity/snapshot.ts';
import { probeBroker } from '../../kafka/wire/broker-probe.ts';
import { tlsOf } from '../../kafka/wire/settings.ts';
import type { CliContext } from '../context.ts';
import { withEtcd } from '../etcd-session.ts';
import { withCluster } from '../kafka-session.ts';
import {
  type Check,
  FEW_REVISIONS,
  fault,
  judgeBroker,
  judgeCompaction,
  judgeEtcd,
  judgeEtcdSize,
  judgeTopicReport,
  MANY_REVISIONS,
  ok,
  unreachableServer,
  warn,
} from './checks.ts';
import { checkClock } from './clock.ts';
import { judgeGroup } from './group.ts';
import { judgeCluster, judgeNamespace } from './namespace.ts';
import { checkRights, GRANT } from './rights.ts';

/** Generous: on a busy machine a server that is late must not look like one that is down. */
const TIMEOUT_MS = 15_000;

export interface KafkaFindings {
  readonly checks: readonly Check[];
  /** The witnesses of this datacenter; undefined when the topic could not be read. */
  readonly witnessed?: WitnessView | undefined;
  /** Undefined when no broker told it. */
  readonly clusterId?: string | undefined;
}

/** Checks each broker, then the cluster. */
export async function checkKafka(context: CliContext, config: Config): Promise<KafkaFindings> {
  const { brokers, tls } = config.kafka;
  const brokerChecks = await Promise.all(
    brokers.map(async (broker) => {
      try {
        const { fetchVersion, latencyMs } = await probeBroker(
          parseHostPort(broker),
          tls ? tlsOf(config.kafka) : undefined,
          TIMEOUT_MS,
        );
        return judgeBroker(broker, fetchVersion, latencyMs);
      } catch (error) {
        return unreachableServer(`Kafka ${broker}`, describeError(error), 'KAFKA_BROKERS (or KAFKA_TLS)');
      }
    }),
  );
  if (brokerChecks.every(({ state }) => state === 'fault')) return { checks: brokerChecks };
  try {
    return await withCluster(context, config, async (source) => {
      const [topics, rights, group, witnessed] = await Promise.all([
        tryTopics(source, config),
        checkRights(source, config),
        tryGroup(source, config),
        tryWitness(source, config, context.stop),
      ]);
      const { clusterId } = await source.cluster.metadata([], TIMEOUT_MS);
      return { checks: [...brokerChecks, ...topics, rights, group], witnessed, clusterId };
    });
  } catch (error) {
    const fix = 'check KAFKA_SASL_*, and that the advertised addresses of the brokers can be reached from here';
    return { checks: [...brokerChecks, fault('Kafka cluster', describeError(error), fix)] };
  }
}

async function tryTopics(source: Source, config: Config): Promise<Check[]> {
  const name = 'permissions';
  try {
    const report = await checkTopics(source, config.topics);
    const but = report.hidden.length === 0 ? '' : `, but not ${report.hidden.join(', ')}, which no worker needs`;
    return [...judgeTopicReport(report), ok(name, `topics and their configs can be described${but}`)];
  } catch (error) {
    return [fault(name, describeError(error), GRANT)];
  }
}

async function tryGroup(source: Source, { groupId, topics }: Config): Promise<Check> {
  const name = 'consumer group';
  try {
    const group = await describeGroup(source, groupId);
    const spans = await wholeTopic(source, topics.requests).catch(nothingYet);
    const partitions = spans.map(({ partition }) => partition);
    const committed = await committedOffsets(source, groupId, topics.requests, partitions);
    return judgeGroup(groupId, group, spans, committed);
  } catch (error) {
    return { name, state: 'fault', detail: describeError(error), fix: `allow Read on the group '${groupId}'` };
  }
}

/** The check of the topics reports a missing one. */
function nothingYet(error: unknown): readonly Span[] {
  if (error instanceof IdallocError && error.code === 'TOPIC_INVALID') return [];
  throw error;
}

/** Reads the witness topic to its end, without writing to it. Other checks report why it can't be read. */
async function tryWitness(source: Source, config: Config, signal: AbortSignal): Promise<WitnessView | undefined> {
  const table = new WitnessTable(config.datacenterId);
  const take = ({ key, value, headers }: TopicRecord) => {
    table.apply(key, value, headers);
    return false;
  };
  try {
    await readSpans(source, await wholeTopic(source, config.topics.witness), { signal, take });
    return table.view();
  } catch (error) {
    if (error instanceof IdallocError && error.code !== 'STOPPING') return undefined;
    throw error;
  }
}

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
  return await withEtcd(config, async (etcd) => [
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
    return fault('namespace', describeError(error), 'see the message; no worker allocates in this state');
  }
}
