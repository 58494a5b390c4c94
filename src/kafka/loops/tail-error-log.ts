import type { Runtime } from '../../async/runtime.ts';
import type { WireLog } from '../wire/broker.ts';
import type { KafkaError } from '../wire/kafka-error.ts';

interface FailingPartition {
  readonly topic: string;
  readonly partition: number;
  readonly state: string;
}

/** Shorter failures, such as a leader election, are not worth a warning. */
const WARN_AFTER_MS = 1_000;

/** Logs partitions that could not be read for a second, with one line for all of a topic that fail alike. */
export class TailErrorLog {
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  readonly #log: WireLog | undefined;
  readonly #failingSinceMs = new Map<FailingPartition, number>();

  constructor(runtime: Pick<Runtime, 'monotonicMs'>, log: WireLog | undefined) {
    this.#runtime = runtime;
    this.#log = log;
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
    if (nowMs - sinceMs < WARN_AFTER_MS) return;
    for (const other of this.#failingSinceMs.keys()) if (other.state === 'stopped') this.#failingSinceMs.delete(other);
    const failing = [...this.#failingSinceMs.keys()].filter((other) => other.topic === topic);
    const partitions = failing.map(({ partition }) => partition).sort((a, b) => a - b);
    const fields = { topic, partitions, errorCode, error };
    this.#log?.('warn', fields, "partitions can't be read, retrying", { about: `${topic} ${errorCode}` });
  }
}
