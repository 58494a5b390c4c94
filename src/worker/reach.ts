import type { Runtime } from '../async/runtime.ts';
import { every } from '../async/waiting.ts';
import { runsText } from '../codec/dead-letter.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import { kafkaErrorCode } from '../kafka/wire/kafka-error.ts';

/** The topics whose leaders a request partition depends on. */
type ReachedTopic = 'requests' | 'ledger' | 'replies';

/** A broker on which a request partition depends, and which does not answer this worker. */
export interface SilentLeader {
  /** The request partition. */
  readonly partition: number;
  readonly topic: ReachedTopic;
  /** The topic and the partition of it that it leads. */
  readonly name: string;
  readonly place: number;
  readonly node: number;
  /** host:port */
  readonly broker: string;
  readonly milliseconds: number;
}

export interface ReachOptions {
  readonly cluster: Pick<Cluster, 'silence' | 'call'>;
  readonly runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>;
  readonly topics: { readonly requests: string; readonly ledger: string };
  /** The partitions of each of the two topics. */
  readonly partitions: number;
  /** The places in reply topics to which replies of request partitions are being sent. */
  readonly replies: () => Iterable<{ readonly partition: number; readonly topic: string; readonly place: number }>;
  /** Called when other partitions than before are unreached, and once a minute while any is. */
  readonly onChange: () => void;
}

const LOOK_MS = 1_000;
/**
 * A broker that has crashed loses its partitions to others within 9 s by default; one that is only cut off from here
 * does not.
 */
export const UNREACHED_MS = 8_000;
/** So that a link that fails every few seconds does not move partitions back and forth. */
const SETTLE_MS = 30_000;
const REMIND_MS = 60_000;
const PROBE_TIMEOUT_MS = 3_000;

/**
 * Knows which request partitions this worker can't serve because it does not reach a broker: the leader of the
 * partition, of its part of the ledger, or of a reply topic that its replies wait for. The brokers are well and other
 * workers may reach them, so the group's coordinator and the controller notice nothing.
 *
 * A leader is silent from the first call that it did not answer. A partition is unreached when a leader has been silent
 * for UNREACHED_MS, and reached again when that has not been so for SETTLE_MS. Until then the leader is probed, since
 * after a hand-over nothing else may call it.
 */
export class Reach implements Disposable {
  readonly #options: ReachOptions;
  /** The unreached partitions: the node that was silent, and until when they count as such (monotonic ms). */
  readonly #unreached = new Map<number, { readonly node: number; readonly untilMs: number }>();
  readonly #probed = new Set<number>();
  #reported = '';
  #remindAtMs = Number.POSITIVE_INFINITY;
  readonly #looking: Disposable;

  constructor(options: ReachOptions) {
    this.#options = options;
    this.#looking = every(options.runtime, LOOK_MS, () => this.#look());
  }

  [Symbol.dispose](): void {
    this.#looking[Symbol.dispose]();
  }

  /** The request partitions that this worker should not own, if another reaches their brokers; rising. */
  get unreached(): readonly number[] {
    return [...this.#unreached.keys()].sort((one, other) => one - other);
  }

  isReached(partition: number): boolean {
    return !this.#unreached.has(partition);
  }

  /** The leaders that have been silent for this long, with the partitions that depend on them. */
  silentFor(atLeastMs: number): readonly SilentLeader[] {
    const { cluster } = this.#options;
    return [...this.#leaders()].flatMap(({ partition, topic, name, place }) => {
      const silence = cluster.silence(name, place);
      return silence === undefined || silence.milliseconds < atLeastMs
        ? []
        : { partition, topic, name, place, ...silence };
    });
  }

  *#leaders() {
    const { topics, partitions, replies } = this.#options;
    for (const topic of ['requests', 'ledger'] as const) {
      for (let at = 0; at < partitions; at += 1) yield { partition: at, topic, name: topics[topic], place: at };
    }
    for (const { partition, topic: name, place } of replies())
      yield { partition, topic: 'replies' as const, name, place };
  }

  #look(): void {
    const { runtime, onChange } = this.#options;
    const nowMs = runtime.monotonicMs();
    for (const { node, partition, milliseconds } of this.silentFor(LOOK_MS)) {
      if (milliseconds >= UNREACHED_MS) this.#unreached.set(partition, { node, untilMs: nowMs + SETTLE_MS });
      this.#probe(node);
    }
    for (const [partition, { node, untilMs }] of this.#unreached) {
      if (untilMs > nowMs) this.#probe(node);
      else this.#unreached.delete(partition);
    }
    const unreached = this.unreached;
    const now = unreached.join();
    if (now === this.#reported && nowMs < this.#remindAtMs) return;
    this.#reported = now;
    this.#remindAtMs = unreached.length === 0 ? Number.POSITIVE_INFINITY : nowMs + REMIND_MS;
    onChange();
  }

  /** Makes one call at a time, so that an answer is noticed. That it fails is what is known already. */
  #probe(node: number): void {
    if (this.#probed.has(node)) return;
    this.#probed.add(node);
    const { cluster, topics } = this.#options;
    cluster
      .call(node, 'control', PROBE_TIMEOUT_MS, (link) => link.call('metadata', { topics: [topics.requests] }))
      .catch((error: unknown) => {
        if (kafkaErrorCode(error) === undefined) throw error;
      })
      .finally(() => this.#probed.delete(node));
  }
}

/** For operators: each silent broker with what it leads and for how long it has been silent. */
export function silenceText(silent: readonly SilentLeader[]): string {
  const brokers = Map.groupBy(silent, ({ broker }) => broker);
  return [...brokers]
    .map(([broker, leaders]) => {
      const seconds = Math.floor(Math.max(...leaders.map(({ milliseconds }) => milliseconds)) / 1_000);
      const led = [...Map.groupBy(leaders, ({ name }) => name)].map(([name, its]) => {
        const places = [...new Set(its.map(({ place }) => place))].sort((one, other) => one - other);
        return `${name}/${runsText(places)}`;
      });
      return `broker ${broker} has not answered this worker for ${seconds} s, and leads ${led.join(', ')}: check the network between them`;
    })
    .join('; ');
}
