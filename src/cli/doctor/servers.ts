import { etcdStatus } from '../../adapters/etcd/status.ts';
import { committedOffsets, describeGroup } from '../../adapters/kafka/consumer-group.ts';
import type { Source } from '../../adapters/kafka/topics/offsets.ts';
import { checkTopics } from '../../adapters/kafka/topics/topics.ts';
import { compareDescriptors, decodeDescriptor } from '../../codec/descriptor.ts';
import type { Config } from '../../config/config.ts';
import { describeError } from '../../errors.ts';
import { namespaceKeys } from '../../identity/keys.ts';
import { readSnapshot } from '../../identity/snapshot.ts';
import { greetBroker } from '../../kafka/wire/greeting.ts';
import type { CliContext } from '../context.ts';
import { withEtcd } from '../etcd-session.ts';
import { withCluster } from '../kafka-session.ts';
import { viewNamespace } from '../lease-view.ts';
import { counted } from '../table.ts';
import {
  type Check,
  judgeBroker,
  judgeClock,
  judgeEtcd,
  judgeEtcdSize,
  judgeTopicReport,
  unreachable,
} from './checks.ts';

const TIMEOUT_MS = 5_000;

/** Each broker by itself, then what all of them together say. */
export async function checkKafka(context: CliContext, config: Config): Promise<Check[]> {
  const { brokers, tls, ca } = config.kafka;
  const greetings = await Promise.all(
    brokers.map(async (broker) => {
      try {
        const { fetchVersion, latencyMs } = await greetBroker(broker, tls ? { ca } : undefined, TIMEOUT_MS);
        return judgeBroker(broker, fetchVersion, latencyMs);
      } catch (error) {
        return unreachable(`Kafka ${broker}`, describeError(error), 'KAFKA_BROKERS (or KAFKA_TLS)');
      }
    }),
  );
  if (greetings.every(({ state }) => state === 'fault')) return greetings;
  try {
    const use = async (source: Source) => [...(await tryTopics(source, config)), await tryGroup(source, config)];
    return [...greetings, ...(await withCluster(context, config, use))];
  } catch (error) {
    const mend = 'check KAFKA_SASL_*, and that the addresses that the brokers advertise can be reached from here';
    return [...greetings, { name: 'Kafka cluster', state: 'fault', detail: describeError(error), mend }];
  }
}

async function tryTopics(source: Source, config: Config): Promise<Check[]> {
  try {
    const report = await checkTopics(source, config.topics);
    const found = { name: 'permissions', state: 'ok', detail: 'topics and their configs can be described' } as const;
    return [...judgeTopicReport(report), found];
  } catch (error) {
    const mend =
      'allow Describe and DescribeConfigs on the topics, Read on requests, ledger and witness, Write on ledger, witness, dead letters and replies';
    return [{ name: 'permissions', state: 'fault', detail: describeError(error), mend }];
  }
}

async function tryGroup(source: Source, { groupId, topics }: Config): Promise<Check> {
  const name = 'consumer group';
  try {
    const group = await describeGroup(source, groupId);
    await committedOffsets(source, groupId, topics.requests, [0]);
    return {
      name,
      state: 'ok',
      detail: `${groupId}: ${group?.state ?? 'none yet'}, ${counted(group?.members.length ?? 0, 'member')}`,
    };
  } catch (error) {
    return { name, state: 'fault', detail: describeError(error), mend: `allow Read on the group '${groupId}'` };
  }
}

/** Each endpoint by itself, then the namespace. */
export async function checkEtcd({ now }: CliContext, config: Config): Promise<Check[]> {
  const { endpoints } = config.etcd;
  const each = await Promise.all(
    endpoints.map(async (endpoint) => {
      try {
        return [
          judgeEtcd(endpoint, await etcdStatus(endpoint, config.etcd, TIMEOUT_MS)),
          await checkClock(endpoint, now),
        ];
      } catch (error) {
        return [unreachable(`etcd ${endpoint}`, describeError(error), 'ETCD_ENDPOINTS (or ETCD_USERNAME)')];
      }
    }),
  );
  const checks = [...each.flat(), judgeEtcdSize(endpoints.length)];
  return each.every(([first]) => first?.state === 'fault') ? checks : [...checks, await checkNamespace(config, now())];
}

/** etcd's HTTP side tells its time in whole seconds. */
async function checkClock(endpoint: string, now: () => number): Promise<Check> {
  const url = new URL('/version', endpoint);
  const sentMs = now();
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    const receivedMs = now();
    const toldMs = Date.parse(answer.headers.get('date') ?? '');
    if (Number.isNaN(toldMs)) throw new Error('it does not tell its time');
    return judgeClock(endpoint, toldMs, sentMs, receivedMs);
  } catch (error) {
    const mend = 'none needed where the endpoint takes gRPC only: workers compare their clock with the brokers';
    return { name: `clock against ${endpoint}`, state: 'warn', detail: `not known: ${describeError(error)}`, mend };
  }
}

async function checkNamespace(config: Config, nowMs: number): Promise<Check> {
  const name = 'namespace';
  const { prefix } = config.etcd;
  const keys = namespaceKeys(prefix, config.datacenterId);
  try {
    const snapshot = await withEtcd(config, (etcd) => readSnapshot(etcd, keys));
    if (snapshot.descriptor === undefined) {
      return { name, state: 'ok', detail: `${keys.root} is not there yet: the first worker makes it` };
    }
    const stored = decodeDescriptor(snapshot.descriptor.value);
    const { layout: wanted, pool, datacenterId } = config;
    const configured = { layoutFingerprint: wanted.fingerprint, epochMs: wanted.epochMs, pool, datacenterId };
    const differing = compareDescriptors(stored, { ...stored, ...configured });
    if (differing.length > 0) {
      const list = differing.map((one) => `${one.field} is ${one.stored}, configured ${one.wanted}`).join('; ');
      const mend = 'configure what is stored (LAYOUT, LAYOUT_EPOCH_MS, POOL_*), or use another ETCD_PREFIX';
      return { name, state: 'fault', detail: `${keys.root}: ${list}`, mend };
    }
    const { layout, leases } = viewNamespace(keys.root, snapshot, nowMs, true);
    const held = leases.filter(({ holder }) => holder !== null).length;
    const missing = leases.filter(({ worker_id }) => !snapshot.ceilings.has(worker_id)).length;
    if (missing > 0) {
      const mend =
        'stop all workers of this datacenter and restore the namespace, each ceiling above every ID ever given';
      return { name, state: 'fault', detail: `${missing} ceilings are missing below ${keys.root}`, mend };
    }
    return { name, state: 'ok', detail: `${keys.root}: layout ${layout}, ${held} of ${leases.length} worker IDs held` };
  } catch (error) {
    const mend = 'see the message: nothing is allocated on a guess';
    return { name, state: 'fault', detail: describeError(error), mend };
  }
}
