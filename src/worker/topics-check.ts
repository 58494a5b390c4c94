import { unlessStopped } from '../adapters/kafka/brokers.ts';
import { workerTopics } from '../adapters/kafka/topics/plan.ts';
import { checkTopics, type TopicsReport } from '../adapters/kafka/topics/topics.ts';
import type { Runtime } from '../async/runtime.ts';
import type { ThrottledLog } from '../async/throttle.ts';
import type { Config } from '../config/config.ts';
import type { GateReason } from '../core/gate.ts';
import { describeError, type ErrorCode, IdallocError } from '../errors.ts';
import { bindingsOf, isCountBound } from '../identity/bindings.ts';
import type { EtcdPort } from '../identity/identity-ports.ts';
import { namespaceKeys } from '../identity/keys.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import { kafkaErrorCode } from '../kafka/wire/kafka-error.ts';
import { unreachable } from '../kafka/wire/settings.ts';
import type { Gatekeeper } from './gatekeeper.ts';

interface Waiting {
  readonly cluster: Cluster;
  readonly etcd: Pick<EtcdPort, 'get'>;
  readonly config: Config;
  readonly gate: Gatekeeper;
  readonly runtime: Runtime;
  readonly lines: ThrottledLog;
  readonly stop: AbortSignal;
}

const RETRY_MS = 1_000;
const LOG_EVERY_MS = 60_000;
/** The servers that may have to be waited for: the reason that the gate shows, and the name. */
const SERVERS: Partial<Record<ErrorCode, readonly [reason: GateReason, name: string]>> = {
  KAFKA_UNAVAILABLE: ['KAFKA_UNAVAILABLE', 'Kafka'],
  ETCD_UNAVAILABLE: ['NO_IDENTITY', 'etcd'],
  ETCD_REFUSED: ['NO_IDENTITY', 'etcd'],
};

/**
 * Waits until the brokers answer, and returns the topics if a worker may start on them. Otherwise rejects with the
 * first fault's code and all messages; CONFIG_INVALID when the brokers reject the login; STOPPING when the signal
 * aborts first. After partitions were added it waits for etcd, too, and may reject with NAMESPACE_MISMATCH.
 */
export async function waitForTopics(waiting: Waiting): Promise<TopicsReport> {
  const { config, gate, runtime, lines, stop } = waiting;
  for (;;) {
    try {
      const report = await unlessStopped(stop, () => acceptedTopics(waiting));
      for (const { code, message } of report.warnings) lines('warn', { code }, message);
      return report;
    } catch (error) {
      const server = error instanceof IdallocError ? SERVERS[error.code] : undefined;
      if (server === undefined) throw withRemedy(error, config);
      const [reason, name] = server;
      const fields = { error: describeError(withRemedy(error, config)) };
      lines('warn', fields, `waiting for ${name}`, { everyMs: LOG_EVERY_MS });
      gate.close('process', reason, describeError(error));
      await runtime.sleep(RETRY_MS, stop);
    }
  }
}

/** For an unreachable broker or a rejected login, an error that names the variables to check. */
function withRemedy(error: unknown, { kafka }: Config): unknown {
  const errorCode = kafkaErrorCode(error);
  const { cause } = error as Error;
  return errorCode === 'UNREACHABLE' || errorCode === 'LOGIN_REFUSED' ? unreachable(cause ?? error, kafka) : error;
}

/**
 * The topics, if a worker may start on them. Partitions that were added to a pair that the namespace serves are no
 * fault: a worker that starts serves the partitions from before, as those that run do. Only etcd can tell that from a
 * REQUEST_PARTITIONS that was wrong from the beginning, which must not be bound.
 */
async function acceptedTopics({ cluster, etcd, config, runtime }: Waiting): Promise<TopicsReport> {
  const { topics } = config;
  const report = await checkTopics({ cluster, runtime }, topics, workerTopics(topics));
  const { faults, added } = report;
  if (faults.length === 0 && added.length > 0) {
    const bindings = bindingsOf(namespaceKeys(config.etcd.prefix, config.datacenterId), config);
    if (await isCountBound(etcd, bindings)) return report;
  }
  const all = [...faults, ...added];
  const [first] = all;
  if (first === undefined) return report;
  throw new IdallocError(first.code, all.map(({ message }) => message).join('; '));
}
