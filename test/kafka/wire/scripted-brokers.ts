import { throttledLog } from '../../../src/async/throttle.ts';
import type { BrokerResponse } from '../../../src/kafka/wire/api.ts';
import { Cluster, type ClusterOptions } from '../../../src/kafka/wire/cluster.ts';
import { KafkaError, type KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type {
  ApiName,
  BrokerAddress,
  BrokerLink,
  Dialer,
  RequestOf,
  ResponseOf,
} from '../../../src/kafka/wire/port.ts';
import type { MetadataResponse } from '../../../src/kafka/wire/topic-apis.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';

/**
 * `frozen`: accepts connections and stays silent; `down`: connections are refused and open ones are gone;
 * `locked`: rejects every login; `gone`: answers, but is no longer in the metadata.
 */
type State = 'healthy' | 'frozen' | 'down' | 'locked' | 'gone';

interface Topic {
  readonly errorCode?: KafkaErrorCode;
  /** The leader of each partition. */
  readonly leaders: readonly number[];
}

/** One call that reached a broker, answered or not. */
interface Seen {
  readonly node: number;
  readonly call: string;
  readonly atMs: number;
  /** Of a request for metadata. */
  readonly topics?: readonly string[] | 'all' | undefined;
}

const ANSWER_MS = 1;

/** Brokers that do what the test scripts, on a virtual clock, and record what they saw. */
export class ScriptedBrokers {
  readonly runtime = new VirtualRuntime();
  readonly log: {
    readonly level: string;
    readonly message: string;
    readonly broker: unknown;
    readonly atMs: number;
  }[] = [];
  readonly dials: Seen[] = [];
  readonly calls: Seen[] = [];
  readonly topics = new Map<string, Topic>();
  /** The state as one broker knows it, if that is outdated. */
  readonly views = new Map<number, ReadonlyMap<string, Topic>>();
  coordinator = 1;
  /** The error code of each look-up of a coordinator, if set. */
  coordinatorFault: KafkaErrorCode | undefined;
  throttleMs = 0;
  dialMs = ANSWER_MS;
  readonly #states = new Map<number, State>();
  readonly #links = new Set<ScriptedLink>();

  constructor(nodes: number) {
    for (let node = 1; node <= nodes; node += 1) this.#states.set(node, 'healthy');
  }

  get seeds(): BrokerAddress[] {
    return [...this.#states.keys()].map(addressOf);
  }

  /** Sockets that are open, or being opened. */
  open = 0;

  set(node: number, state: State): void {
    this.#states.set(node, state);
    if (state === 'down') for (const link of [...this.#links]) if (link.node === node) link.end('it went down');
  }

  stateOf(node: number): State {
    return this.#states.get(node) ?? 'down';
  }

  cluster(options: Partial<ClusterOptions> = {}): Cluster {
    const { runtime, seeds } = this;
    const log = throttledLog(runtime, (level, fields, message) => {
      const { broker } = fields as { broker?: unknown };
      this.log.push({ level, message, broker, atMs: runtime.monotonicMs() });
    });
    return new Cluster({ dialer: this.dialer, seeds, runtime, log, ...options });
  }

  readonly dialer: Dialer = {
    dial: async ({ host, port }, signal) => {
      const node = port;
      this.dials.push({ node, call: 'dial', atMs: this.runtime.monotonicMs() });
      this.open += 1;
      try {
        await this.runtime.sleep(this.dialMs, signal);
        if (!signal.aborted && this.stateOf(node) === 'frozen') await aborted(signal);
        if (signal.aborted) throw new KafkaError('CLOSED', 'given up');
        if (this.stateOf(node) === 'locked') throw new KafkaError('LOGIN_REFUSED', `${host}:${port} is locked`);
        if (this.stateOf(node) === 'down') throw new KafkaError('UNREACHABLE', `${host}:${port} refused`);
      } catch (error) {
        this.open -= 1;
        throw error;
      }
      const link = new ScriptedLink(node, this, () => {
        this.open -= 1;
        this.#links.delete(link);
      });
      this.#links.add(link);
      return link;
    },
  };

  metadataOf(node: number, asked: readonly string[] | 'all'): MetadataResponse {
    const known = this.views.get(node) ?? this.topics;
    const names = asked === 'all' ? [...known.keys()] : asked;
    return {
      throttleMs: this.throttleMs,
      clusterId: 'scripted',
      controllerId: 1,
      brokers: this.#named.map((nodeId) => ({ nodeId, ...addressOf(nodeId) })),
      topics: names.map((name) => {
        const { errorCode, leaders } = known.get(name) ?? { errorCode: 'UNKNOWN_TOPIC_OR_PARTITION', leaders: [] };
        return {
          name,
          ...(errorCode === undefined ? {} : { errorCode }),
          partitions: leaders.map((leader, partition) => ({ partition, leader, replicas: [leader], inSync: [leader] })),
        };
      }),
    };
  }

  get #named(): number[] {
    return [...this.#states.keys()].filter((node) => this.stateOf(node) !== 'gone');
  }

  callsOf(call: string): Seen[] {
    return this.calls.filter((seen) => seen.call === call);
  }
}

function addressOf(node: number): BrokerAddress {
  return { host: 'broker', port: node };
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve()));
}

/** The calls that the tests make: metadata, heartbeat for any other, and findCoordinator. */
class ScriptedLink implements BrokerLink {
  readonly node: number;
  readonly ended: Promise<void>;
  readonly #brokers: ScriptedBrokers;
  readonly #waiting = new Set<(errorCode: KafkaError) => void>();
  #resolveEnded: () => void = () => {};
  #onEnd: (() => void) | undefined;

  constructor(node: number, brokers: ScriptedBrokers, onEnd: () => void) {
    this.node = node;
    this.#brokers = brokers;
    this.#onEnd = onEnd;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
  }

  close(): void {
    this.end('closed');
  }

  end(why: string): void {
    this.#onEnd?.();
    this.#onEnd = undefined;
    for (const reject of [...this.#waiting]) reject(new KafkaError('CONNECTION_LOST', why));
    this.#resolveEnded();
  }

  call<A extends ApiName>(api: A, request: RequestOf<A>): Promise<ResponseOf<A>> {
    return this.#serve(api, request, () => this.#answers(api, request) as ResponseOf<A>);
  }

  #answers(api: ApiName, request: unknown): BrokerResponse {
    if (api === 'metadata') return this.#brokers.metadataOf(this.node, (request as RequestOf<'metadata'>).topics);
    if (api !== 'findCoordinator') return { throttleMs: this.#brokers.throttleMs };
    const { coordinator: nodeId, coordinatorFault } = this.#brokers;
    if (coordinatorFault !== undefined) throw new KafkaError(coordinatorFault, 'an error from the test');
    return { throttleMs: 0, nodeId, ...addressOf(nodeId) } as BrokerResponse;
  }

  async #serve<R>(call: string, request: unknown, answer: () => R): Promise<R> {
    const { runtime, calls } = this.#brokers;
    if (this.#onEnd === undefined) throw new KafkaError('CONNECTION_LOST', 'it has ended');
    const { topics } = call === 'metadata' ? (request as RequestOf<'metadata'>) : {};
    calls.push({ node: this.node, call, atMs: runtime.monotonicMs(), topics });
    return new Promise<R>((resolve, reject) => {
      this.#waiting.add(reject);
      runtime.schedule(ANSWER_MS, () => {
        if (this.#brokers.stateOf(this.node) === 'frozen' || !this.#waiting.delete(reject)) return;
        try {
          resolve(answer());
        } catch (error) {
          reject(error as KafkaError);
        }
      });
    });
  }
}
