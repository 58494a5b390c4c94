import type { TopicFault } from '../adapters/kafka/topics/judge.ts';
import { workerTopics } from '../adapters/kafka/topics/plan.ts';
import { checkTopics } from '../adapters/kafka/topics/topics.ts';
import type { Runtime } from '../async/runtime.ts';
import { every } from '../async/waiting.ts';
import type { Config } from '../config/config.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import type { Log } from '../log.ts';
import { type CountedTopic, PartitionCounts } from './partition-counts.ts';

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
