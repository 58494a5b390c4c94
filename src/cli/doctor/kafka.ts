import { CALL_TIMEOUT_MS } from '../../adapters/kafka/brokers.ts';
import { type Committed, committedOffsets, describeGroup } from '../../adapters/kafka/consumer-group.ts';
import { cliReplyTopic } from '../../adapters/kafka/topics/plan.ts';
import { type Right, rightsOf } from '../../adapters/kafka/topics/rights.ts';
import { readSpans, type Source, type Span, type TopicRecord, wholeTopic } from '../../adapters/kafka/topics/spans.ts';
import { checkTopics, type TopicsReport } from '../../adapters/kafka/topics/topics.ts';
import { WitnessTable, type WitnessView } from '../../codec/witness.ts';
import type { Config } from '../../config/config.ts';
import { parseHostPort } from '../../core/host-port.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { type DescribedGroup, memberNames } from '../../kafka/loops/described-group.ts';
import { probeBroker } from '../../kafka/wire/kafkajs-dialer.ts';
import { tlsOf } from '../../kafka/wire/settings.ts';
import type { AuthorizedOperationsResponse } from '../../kafka/wire/topic-apis.ts';
import type { CliContext } from '../context.ts';
import { noneIfGone, withCluster } from '../kafka-session.ts';
import { counted, spanText } from '../output.ts';
import { type Check, fault, ok, TIMEOUT_MS, unreachableServer, warn } from './checks.ts';

export interface KafkaFindings {
  readonly checks: readonly Check[];
  /** The witnesses of this datacenter; undefined when the topic could not be read. */
  readonly witnessed?: WitnessView | undefined;
  /** The cluster that the brokers say they belong to; undefined when none told it. */
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
  try {
    const group = await describeGroup(source, groupId);
    const spans = await wholeTopic(source, topics.requests).catch(noneIfGone); // another check reports that
    const partitions = spans.map(({ partition }) => partition);
    const committed = await committedOffsets(source, groupId, topics.requests, partitions);
    return judgeGroup(groupId, group, spans, committed);
  } catch (error) {
    return fault(GROUP, describeError(error), `allow Read on the group '${groupId}'`);
  }
}

/** Reads the witness topic to its end, without writing to it. Other checks report why it can't be read. */
async function tryWitness(source: Source, config: Config, signal: AbortSignal): Promise<WitnessView | undefined> {
  const table = new WitnessTable(config.datacenterId);
  const take = ({ key, value, headers }: TopicRecord) => table.apply(key, value, headers);
  try {
    await readSpans(source, await wholeTopic(source, config.topics.witness), { signal, take });
    return table.view();
  } catch (error) {
    if (error instanceof IdallocError && error.code !== 'STOPPING') return undefined;
    throw error;
  }
}

/** The release that brought each version of the fetch request. */
const RELEASES: readonly (readonly [number, string])[] = [
  [18, '4.1 or later'],
  [17, '3.9 or 4.0'],
  [16, '3.7 or 3.8'],
  [15, '3.5 or 3.6'],
  [13, '3.1 to 3.4'],
  [12, '2.7 to 3.0'],
  [11, '2.3 to 2.6'],
];
const OLDEST_FETCH = 11;
const SLOW_MS = 500;

export function judgeBroker(broker: string, fetchVersion: number, latencyMs: number): Check {
  const name = `Kafka ${broker}`;
  const release = RELEASES.find(([version]) => fetchVersion >= version)?.[1] ?? 'older than 2.3';
  const detail = `Kafka ${release}, ${spanText(latencyMs)}`;
  if (fetchVersion < OLDEST_FETCH) return fault(name, detail, 'run Kafka 2.3 or later; 4.1 is tested');
  if (latencyMs > SLOW_MS) return warn(name, detail, 'find out why it is slow: each batch waits for one append');
  return ok(name, detail);
}

/** Topics, their retention rules and the ledger's strength, as a worker would judge them at its start. */
export function judgeTopicReport({ faults, added, warnings, differences, remedies }: TopicsReport): Check[] {
  const fix = remedies.join('; ');
  const checks = [
    ...faults.map(({ code, message }) => fault(`topics ${code}`, message, fix === '' ? 'see the message' : fix)),
    ...warnings.map(({ code, message }) => warn(`topics ${code}`, message, 'for production: three brokers or more')),
    ...added.map(({ code, message }) => warn(`topics ${code}`, message, fix)),
    ...(differences.length > 0 ? [warn('topics', differences.join('; '), fix)] : []),
  ];
  return checks.length > 0
    ? checks
    : [ok('topics', 'exist with the expected settings; the ledger is kept longer than the requests')];
}

const GROUP = 'consumer group';

/** Judges the workers' group, which only workers may join, and its committed offsets, which only they may move on. */
export function judgeGroup(
  groupId: string,
  group: DescribedGroup | undefined,
  spans: readonly Span[],
  committed: ReadonlyMap<number, Committed>,
): Check {
  const members = counted(group?.members.length ?? 0, 'member');
  const detail = `${groupId}: ${group?.state ?? 'none yet'}, ${members}, lag ${lagOf(spans, committed)}`;
  const foreign = memberNames(group?.foreign ?? []);
  if (foreign.length > 0) {
    const fix = "stop it, or set KAFKA_GROUP_ID to a group of the workers' own";
    return fault(GROUP, `${detail}; not a worker: ${foreign.join(', ')}`, fix);
  }
  const moved = [...committed].filter(([, { position }]) => position === undefined).map(([partition]) => partition);
  if (moved.length === 0) return ok(GROUP, detail);
  const fix = 'find out what moved them; workers read again from what the ledger shows as answered';
  return warn(GROUP, `${detail}; no worker committed the offsets of partitions ${moved.join(', ')}`, fix);
}

/** How many requests the group has not committed yet. */
function lagOf(spans: readonly Span[], committed: ReadonlyMap<number, Committed>): number {
  const lag = ({ partition, from, to }: Span) => to - Math.max(from, committed.get(partition)?.offset ?? from);
  return spans.reduce((sum, span) => sum + lag(span), 0);
}

const RIGHTS = 'rights';
const GRANT = 'idalloc topics acls --principal User:… --role worker';
const MAX_NAMED = 10;

/** Checks whether the configured user has the rights that a worker needs. */
async function checkRights(source: Source, config: Pick<Config, 'topics' | 'groupId'>): Promise<Check> {
  const rights = rightsOf('worker', config);
  const { replyPrefix } = config.topics;
  try {
    const { topics: all } = await source.cluster.metadata('all', CALL_TIMEOUT_MS);
    const replies = all.map(({ name }) => name).filter((name) => name.startsWith(replyPrefix));
    const named = rights.filter(({ resource, pattern }) => resource === 'topic' && pattern === 'literal');
    const topics = [...new Set([...named.map(({ name }) => name), cliReplyTopic(config.topics), ...replies])];
    const response = await source.cluster.callAny(CALL_TIMEOUT_MS, (link) =>
      link.call('authorizedOperations', { topics }),
    );
    return judgeRights(rights, response.topics, replyPrefix);
  } catch (error) {
    return warn(RIGHTS, `unknown: ${describeError(error)}`, `compare them with what '${GRANT}' prints`);
  }
}

/**
 * Compares the rights that the brokers report with those that are needed. A user without Write on any topic is not a
 * worker's, so its rights say nothing about a worker. The right to write to all topics under the prefix shows only on
 * topics that exist.
 */
export function judgeRights(
  rights: readonly Right[],
  topics: AuthorizedOperationsResponse['topics'],
  replyPrefix: string,
): Check {
  const existing = topics.filter(({ errorCode: why }) => why !== 'UNKNOWN_TOPIC_OR_PARTITION');
  const lacks = existing.flatMap(({ name, operations }) => {
    const needed = rights.filter((right) => isAbout(right, name)).flatMap((right) => right.operations);
    const lacking = needed.filter((operation) => !operations.has(operation));
    return lacking.length === 0 ? [] : [`${lacking.join(', ')} on '${name}'`];
  });
  if (lacks.length > 0 && !existing.some(({ operations }) => operations.has('Write'))) {
    const detail =
      "this user can't write to any topic, so it is not a worker's: the rights of a worker's user can't be known";
    return warn(RIGHTS, detail, "run this with the worker's login");
  }
  if (lacks.length > 0) {
    const shown = lacks.slice(0, MAX_NAMED).join('; ');
    const more = lacks.length > MAX_NAMED ? ` and ${lacks.length - MAX_NAMED} more` : '';
    return fault(RIGHTS, `missing: ${shown}${more}`, GRANT);
  }
  const replies = existing.filter(({ name }) => name.startsWith(replyPrefix)).length;
  if (replies === 0) {
    const detail = `no topic begins with '${replyPrefix}', so the right to write replies can't be checked`;
    return warn(RIGHTS, detail, 'create a reply topic (idalloc topics init --reply-topic), and run this again');
  }
  return ok(RIGHTS, `all worker rights granted, including ${counted(replies, 'reply topic')}`);
}

function isAbout({ resource, pattern, name }: Right, topic: string): boolean {
  return resource === 'topic' && (pattern === 'literal' ? name === topic : topic.startsWith(name));
}
