import { unlessStopped } from '../adapters/kafka/brokers.ts';
import type { TopicFault } from '../adapters/kafka/topics/judge.ts';
import { workerTopics } from '../adapters/kafka/topics/plan.ts';
import { checkTopics, type TopicsReport } from '../adapters/kafka/topics/topics.ts';
import type { Runtime } from '../async/runtime.ts';
import type { ThrottledLog } from '../async/throttle.ts';
import { every } from '../async/waiting.ts';
import type { Config } from '../config/config.ts';
import type { GateReason } from '../core/gate.ts';
import { describeError, type ErrorCode, IdallocError } from '../errors.ts';
import { bindingsOf, isCountBound } from '../identity/bindings.ts';
import type { EtcdPort } from '../identity/identity-ports.ts';
import { namespaceKeys } from '../identity/keys.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import { kafkaErrorCode } from '../kafka/wire/kafka-error.ts';
import { unreachable } from '../kafka/wire/settings.ts';
import type { Log } from '../log.ts';
import type { Gatekeeper } from './gatekeeper.ts';

export interface TopicsWait {
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
export async function waitForTopics(waiting: TopicsWait): Promise<TopicsReport> {
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
async function acceptedTopics({ cluster, etcd, config, runtime }: TopicsWait): Promise<TopicsReport> {
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

export interface TopicsWatchOptions {
  readonly cluster: Cluster;
  readonly config: Pick<Config, 'topics'>;
  readonly runtime: Runtime;
  readonly log: Log;
  /** Called after each change of `added`. */
  readonly onAdded: () => void;
  /** For errors that waiting won't fix. */
  readonly fail: (error: unknown) => void;
}

/** A minute on average. Workers that started together don't look together. */
const LOOK_MS = { least: 45_000, spread: 30_000 } as const;

/**
 * Judges the topics each minute as at the start, since anyone with Kafka's tools can change them under running workers.
 *
 * A fault that is found so is a warning and closes no gate. A worker that stopped would not save what the ledger is
 * about to lose, and all workers would stop at once. What is found holds until a later look no longer finds it: brokers
 * that do not answer, and one that does not let this user read the settings, say nothing about the topics.
 */
export class TopicsWatch implements Disposable {
  readonly #options: TopicsWatchOptions;
  readonly #counts: PartitionCounts;
  readonly #looking: Disposable;
  readonly #stop = new AbortController();
  #faults: readonly TopicFault[] = [];
  /** The last look failed, which was logged. */
  #isBlind = false;

  constructor(options: TopicsWatchOptions) {
    const { config, runtime, fail } = options;
    const { topics } = config;
    this.#options = options;
    this.#counts = new PartitionCounts({ ...options, topics, partitions: topics.requestPartitions });
    this.#looking = every(runtime, LOOK_MS.least, () => this.#look().catch(fail));
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
    this.#looking[Symbol.dispose]();
    this.#counts[Symbol.dispose]();
  }

  /** How many partitions each topic has beyond those that are served. */
  get added(): ReadonlyMap<CountedTopic, number> {
    return this.#counts.added;
  }

  /** Why a worker would not start on the topics as they were at the last look, but for added partitions. */
  get faults(): readonly TopicFault[] {
    return this.#faults;
  }

  /** What an operator has to repair; undefined for nothing. The code is the first one's. */
  get warning(): { readonly code: TopicFault['code']; readonly detail: string } | undefined {
    const { detail } = this.#counts;
    const counted: TopicFault[] = detail === undefined ? [] : [{ code: 'TOPIC_INVALID', message: detail }];
    const all = [...counted, ...this.#faults];
    const [first] = all;
    return first && { code: first.code, detail: all.map(({ message }) => message).join('; ') };
  }

  async #look(): Promise<void> {
    const { cluster, runtime, config, log } = this.#options;
    const { signal } = this.#stop;
    await runtime.sleep(LOOK_MS.spread * runtime.random(), signal);
    if (signal.aborted) return;
    try {
      const { faults } = await checkTopics({ cluster, runtime }, config.topics, workerTopics(config.topics));
      this.#isBlind = false;
      if (!signal.aborted) this.#found(faults);
    } catch (error) {
      if (!(error instanceof IdallocError)) throw error;
      if (!this.#isBlind && !signal.aborted)
        log.warn({ error: describeError(error) }, "the topics' settings could not be read");
      this.#isBlind = true;
    }
  }

  #found(faults: readonly TopicFault[]): void {
    const { log } = this.#options;
    const before = this.#faults;
    this.#faults = faults;
    for (const { code, message } of without(faults, before)) log.error({ code, error: message }, 'a topic was changed');
    for (const { code, message } of without(before, faults)) log.info({ code, error: message }, 'a topic was repaired');
  }
}

function without(these: readonly TopicFault[], those: readonly TopicFault[]): readonly TopicFault[] {
  const known = new Set(those.map(({ message }) => message));
  return these.filter(({ message }) => !known.has(message));
}

interface PartitionCountsOptions {
  readonly cluster: Pick<Cluster, 'partitions'>;
  readonly runtime: Pick<Runtime, 'schedule'>;
  readonly log: Log;
  readonly topics: { readonly requests: string; readonly ledger: string };
  /** The partitions of each of the two topics that are served. */
  readonly partitions: number;
  /** Called after each change of `added`. */
  readonly onAdded: () => void;
  /** Called with TOPIC_INVALID. */
  readonly fail: (error: unknown) => void;
}

/** Each look reads the cached metadata, which the cluster renews every 10 s for the topics in use. */
const COUNT_MS = 1_000;
const LOOKUP_TIMEOUT_MS = 5_000;

const COUNTED = ['requests', 'ledger'] as const;
export type CountedTopic = (typeof COUNTED)[number];

/**
 * Compares the partition counts of the request topic and the ledger with what is served, and reports a difference
 * within about 11 s.
 *
 * More partitions endanger nothing: homes are computed with the count that is bound in etcd, by every worker, whenever
 * it started. A request that comes to another partition than its home is forwarded, also from an added one. Fewer
 * partitions mean another topic of this name, without what was decided: the worker ends.
 */
class PartitionCounts implements Disposable {
  readonly #options: PartitionCountsOptions;
  readonly #added = new Map<CountedTopic, number>();
  readonly #looking: Disposable;
  #disposed = false;

  constructor(options: PartitionCountsOptions) {
    this.#options = options;
    this.#looking = every(options.runtime, COUNT_MS, () => this.#look().catch(options.fail));
  }

  [Symbol.dispose](): void {
    this.#disposed = true;
    this.#looking[Symbol.dispose]();
  }

  /** How many partitions each topic has beyond those that are bound. */
  get added(): ReadonlyMap<CountedTopic, number> {
    return this.#added;
  }

  /** What has changed and what to do; undefined for no change. */
  get detail(): string | undefined {
    const { topics, partitions } = this.#options;
    const changes = [...this.#added].map(([topic, added]) => changed(topics[topic], partitions + added, partitions));
    if (changes.length === 0) return undefined;
    const detour = this.#added.has('requests') ? ', and forward the requests of the others to them' : '';
    return `${changes.join(', ')}: workers serve the first ${partitions}${detour}; to end that, create a second pair of topics, see docs/how-to/pair-of-topics.md`;
  }

  async #look(): Promise<void> {
    for (const topic of COUNTED) {
      const count = await this.#count(this.#options.topics[topic]);
      if (count !== undefined && !this.#disposed) this.#compare(topic, count);
    }
  }

  /** Undefined while the brokers don't say: others report that. */
  async #count(topic: string): Promise<number | undefined> {
    try {
      return await this.#options.cluster.partitions(topic, LOOKUP_TIMEOUT_MS);
    } catch (error) {
      if (kafkaErrorCode(error) === undefined) throw error;
      return undefined;
    }
  }

  /** A broker that lags behind reports the count before: what was added stays. */
  #compare(topic: CountedTopic, count: number): void {
    const { topics, partitions, log } = this.#options;
    const name = topics[topic];
    if (count < partitions) {
      const message = `${changed(name, count, partitions)}: it was deleted and created again; ledger and request topic must have the count that they were created with`;
      throw new IdallocError('TOPIC_INVALID', message);
    }
    if (count - partitions <= (this.#added.get(topic) ?? 0)) return;
    this.#added.set(topic, count - partitions);
    this.#options.onAdded();
    const fields = { code: 'TOPIC_INVALID', topic: name, partitions: count, served: partitions };
    log.error({ ...fields, error: this.detail }, 'partitions were added to a topic');
  }
}

function changed(topic: string, count: number, before: number): string {
  return `topic '${topic}' has ${count} partitions instead of ${before}`;
}
