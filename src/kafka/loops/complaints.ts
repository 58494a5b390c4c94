import type { Runtime } from '../../core/runtime.ts';
import type { WireLog } from '../wire/broker.ts';
import type { KafkaFault } from '../wire/fault.ts';

interface Place {
  readonly topic: string;
  readonly partition: number;
  readonly state: string;
}

/** Faults that pass sooner, as with the election of a leader, are not worth a warning. */
const PATIENCE_MS = 1_000;
/** One line for a topic and a fault in so long, whatever the number of partitions. */
const QUIET_MS = 10_000;

/** Reports partitions that can't be read: those that have failed for a second, and seldom. */
export class TailComplaints {
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  readonly #log: WireLog | undefined;
  readonly #illSinceMs = new Map<Place, number>();
  readonly #reportedMs = new Map<string, number>();

  constructor(runtime: Pick<Runtime, 'monotonicMs'>, log: WireLog | undefined) {
    this.#runtime = runtime;
    this.#log = log;
  }

  /** The partition was read. */
  well(place: Place): void {
    this.#illSinceMs.delete(place);
  }

  ill(place: Place, { fault, message: error }: KafkaFault): void {
    const nowMs = this.#runtime.monotonicMs();
    const sinceMs = this.#illSinceMs.get(place) ?? nowMs;
    this.#illSinceMs.set(place, sinceMs);
    const { topic } = place;
    const line = `${topic} ${fault}`;
    const isRepeated = nowMs - (this.#reportedMs.get(line) ?? Number.NEGATIVE_INFINITY) < QUIET_MS;
    if (isRepeated || nowMs - sinceMs < PATIENCE_MS) return;
    this.#reportedMs.set(line, nowMs);
    for (const other of this.#illSinceMs.keys()) if (other.state === 'stopped') this.#illSinceMs.delete(other);
    const ill = [...this.#illSinceMs.keys()].filter((other) => other.topic === topic);
    const partitions = ill.map(({ partition }) => partition).sort((a, b) => a - b);
    this.#log?.('warn', { topic, partitions, fault, error }, 'partitions can not be read, trying again');
  }
}
