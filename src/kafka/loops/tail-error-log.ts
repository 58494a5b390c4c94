import type { Runtime } from '../../async/runtime.ts';
import { Throttle } from '../../async/throttle.ts';
import type { WireLog } from '../wire/broker.ts';
import type { KafkaError } from '../wire/kafka-error.ts';

interface FailingPartition {
  readonly topic: string;
  readonly partition: number;
  readonly state: string;
}

/** Shorter failures, such as a leader election, are not worth a warning. */
const WARN_AFTER_MS = 1_000;
/** At most one line per topic and error in this time, whatever the number of partitions. */
const REPEAT_AFTER_MS = 10_000;

/** Logs partitions that could not be read for a second, at a limited rate. */
export class TailErrorLog {
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  readonly #log: WireLog | undefined;
  readonly #failingSinceMs = new Map<FailingPartition, number>();
  readonly #throttle: Throttle;

  constructor(runtime: Pick<Runtime, 'monotonicMs'>, log: WireLog | undefined) {
    this.#runtime = runtime;
    this.#log = log;
    this.#throttle = new Throttle(runtime, REPEAT_AFTER_MS);
  }

  /** The partition was read. */
  readable(followed: FailingPartition): void {
    this.#failingSinceMs.delete(followed);
  }

  failed(followed: FailingPartition, { errorCode, message: error }: KafkaError): void {
    const nowMs = this.#runtime.monotonicMs();
    const sinceMs = this.#failingSinceMs.get(followed) ?? nowMs;
    this.#failingSinceMs.set(followed, sinceMs);
    const { topic } = followed;
    if (nowMs - sinceMs < WARN_AFTER_MS || !this.#throttle.passes(`${topic} ${errorCode}`)) return;
    for (const other of this.#failingSinceMs.keys()) if (other.state === 'stopped') this.#failingSinceMs.delete(other);
    const failing = [...this.#failingSinceMs.keys()].filter((other) => other.topic === topic);
    const partitions = failing.map(({ partition }) => partition).sort((a, b) => a - b);
    this.#log?.('warn', { topic, partitions, errorCode, error }, "partitions can't be read, retrying");
  }
}
