import { unlessStopped } from '../adapters/kafka/brokers.ts';
import { workerTopics } from '../adapters/kafka/topics/plan.ts';
import { checkTopics, type TopicsReport } from '../adapters/kafka/topics/topics.ts';
import type { Runtime } from '../async/runtime.ts';
import { Throttle } from '../async/throttle.ts';
import type { Config } from '../config/config.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import { kafkaErrorCode } from '../kafka/wire/kafka-error.ts';
import { unreachable } from '../kafka/wire/settings.ts';
import type { Log } from '../log.ts';
import type { Gatekeeper } from './gatekeeper.ts';

interface Waiting {
  readonly cluster: Cluster;
  readonly config: Config;
  readonly gate: Gatekeeper;
  readonly runtime: Runtime;
  readonly log: Log;
  readonly stop: AbortSignal;
}

const RETRY_MS = 1_000;
const LOG_EVERY_MS = 60_000;

/**
 * Waits until the brokers answer, and returns the topics if a worker may start on them. Otherwise rejects with the first
 * fault's code and all messages; CONFIG_INVALID when the brokers reject the login; STOPPING when the signal aborts first.
 */
export async function waitForTopics(waiting: Waiting): Promise<TopicsReport> {
  const { cluster, config, gate, runtime, log, stop } = waiting;
  const throttle = new Throttle(runtime, LOG_EVERY_MS);
  for (;;) {
    try {
      const check = () => checkTopics({ cluster, runtime }, config.topics, workerTopics(config.topics));
      return accepted(await unlessStopped(stop, check), log);
    } catch (error) {
      if (!(error instanceof IdallocError && error.code === 'KAFKA_UNAVAILABLE')) throw withRemedy(error, config);
      if (throttle.passes()) log.warn({ error: describeError(withRemedy(error, config)) }, 'waiting for Kafka');
      gate.close('process', 'KAFKA_UNAVAILABLE', error.message);
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

function accepted(report: TopicsReport, log: Log): TopicsReport {
  for (const { code, message } of report.warnings) log.warn({ code }, message);
  const [first] = report.faults;
  if (first === undefined) return report;
  throw new IdallocError(first.code, report.faults.map(({ message }) => message).join('; '));
}
