import type { Runtime, Timer } from '../../async/runtime.ts';
import { formatHostPort } from '../../core/host-port.ts';
import type { BrokerResponse } from './api.ts';
import { Broker, type Purpose, type WireLog } from './broker.ts';
import { closedError, Deadlines } from './deadlines.ts';
import { isLinkError, isUncoordinated } from './error-codes.ts';
import { KafkaError, kafkaErrorCode } from './kafka-error.ts';
import type { BrokerAddress, BrokerLink, Dialer } from './port.ts';
import type { MetadataResponse, TopicMetadata } from './topic-apis.ts';
import { Refresher, Topology } from './topology.ts';

export interface ClusterOptions {
  readonly dialer: Dialer;
  /** The bootstrap brokers, which name the others; read each time, since they may move. */
  readonly seeds: readonly BrokerAddress[];
  readonly runtime: Runtime;
  /** `warn` when a broker becomes suspect and when it answers again; the same line at most every 10 s per broker. */
  readonly log?: WireLog;
}

/** A broker that does not answer. */
export interface Silence {
  readonly node: number;
  /** host:port */
  readonly broker: string;
  /** Since the first call after its last response. */
  readonly milliseconds: number;
}

const DEFAULT_TIMEOUT_MS = 10_000;
/** The longest wait for one broker when any other could answer instead. */
const MAX_ASK_MS = 3_000;
/** Any broker can name a coordinator, so this gets less time than a call to the group. */
const MAX_FIND_MS = 5_000;
/** With less time left nothing is sent, so that a late caller does not make a broker suspect. */
const MIN_CALL_MS = 250;

/**
 * The brokers of one cluster: the leaders of partitions, and connections.
 *
 * - Every call has a deadline by the monotonic clock. Past it the connection is closed, since a late response would
 *   belong to no call; the broker becomes suspect; the leaders of its partitions are requested from other brokers.
 * - No call is ever sent twice. A request that any broker can answer (metadata, coordinators) goes to one after
 *   another.
 * - A leader marked as stale is not used: `leader` then waits for the response to a later request.
 * - After `close` no socket and no timer is left, and all pending calls have been rejected with CLOSED.
 */
export class Cluster {
  readonly #options: ClusterOptions;
  readonly #deadlines: Deadlines;
  readonly #topology = new Topology();
  readonly #refresher: Refresher;
  /** By address. */
  readonly #brokers = new Map<string, Broker>();
  /** Closed, but its sockets may not be gone yet. */
  readonly #ending = new Set<Promise<void>>();
  readonly #coordinators = new Map<string, Promise<number>>();
  #lastResponseMs: number | undefined;

  constructor(options: ClusterOptions) {
    this.#options = options;
    const { runtime } = options;
    this.#deadlines = new Deadlines(runtime);
    this.#refresher = new Refresher({
      runtime,
      deadlines: this.#deadlines,
      refresh: (of) => this.#refresh(of),
      isWanted: () => this.#topology.inUse(runtime.monotonicMs()).length > 0,
      isUrgent: () => [...this.#brokers.values()].some(({ isSuspect }) => isSuspect),
    });
  }

  /** When any broker answered last (monotonic ms); undefined before the first response. */
  get lastResponseMs(): number | undefined {
    return this.#lastResponseMs;
  }

  /**
   * Requests metadata from one broker after another, suspects last, until one answers or the time is up. Never cached.
   * Rejects early once all of them have failed.
   */
  metadata(topics: readonly string[] | 'all', timeoutMs = DEFAULT_TIMEOUT_MS): Promise<MetadataResponse> {
    return this.#metadata(topics, this.#now() + timeoutMs);
  }

  /** As `metadata`. The topics that exist are about to be used: their leaders are cached. */
  metadataForUse(topics: readonly string[], timeoutMs = DEFAULT_TIMEOUT_MS): Promise<MetadataResponse> {
    return this.#metadata(topics, this.#now() + timeoutMs, true);
  }

  /**
   * The node ID of the leader, from the cache or else from a broker. Rejects with UNKNOWN_TOPIC_OR_PARTITION,
   * LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED …, or a link error.
   */
  async leader(topic: string, partition: number, timeoutMs = DEFAULT_TIMEOUT_MS): Promise<number> {
    const hasLeader = (known: TopicMetadata) => this.#topology.hasLeader(known, partition);
    return this.#topology.leaderOf(await this.#topic(topic, timeoutMs, hasLeader), partition);
  }

  /**
   * The leader of a partition, as far as it is known, if calls to it are not answered: for how long. Undefined if it
   * answers or is not called.
   */
  silence(topic: string, partition: number): Silence | undefined {
    const node = this.#topology.lastLeader(topic, partition);
    const address = node === undefined ? undefined : this.#topology.brokers.get(node);
    const broker = address && this.#brokers.get(formatHostPort(address));
    return node === undefined || broker === undefined || broker.silentMs === 0
      ? undefined
      : { node, broker: broker.name, milliseconds: broker.silentMs };
  }

  /** The number of partitions of a topic; rejects as `leader` does. */
  async partitions(topic: string, timeoutMs = DEFAULT_TIMEOUT_MS): Promise<number> {
    return (await this.#topic(topic, timeoutMs, () => true)).partitions.length;
  }

  /**
   * Makes one call on the connection of that purpose to a broker, which is opened if needed. Opening it, and waiting
   * for a throttle to end, count towards the deadline. Rejects with NO_RESPONSE past the deadline, or with UNREACHABLE
   * if there was no connection yet, so that nothing was sent. Never sends twice.
   */
  async call<R extends BrokerResponse>(
    node: number,
    purpose: Purpose,
    timeoutMs: number,
    use: (link: BrokerLink) => Promise<R>,
  ): Promise<R> {
    const deadlineMs = this.#now() + timeoutMs;
    const address = this.#topology.brokers.get(node) ?? (await this.#lookUpAddress(node, timeoutMs));
    return this.#broker(address).call(purpose, deadlineMs, use);
  }

  /**
   * The cached leaders of the topic may be wrong: the next `leader` waits for the response to a request sent after
   * this.
   */
  markStale(topic: string): void {
    if (this.#deadlines.closed) return;
    this.#topology.markStale(topic);
    this.#refresher.next().catch(() => undefined); // the next caller tries again
  }

  /**
   * Makes one call that any broker can answer, to one after another, suspects last. Rejects early once all of them have
   * failed, or when one answers with an error.
   */
  callAny<R extends BrokerResponse>(timeoutMs: number, use: (link: BrokerLink) => Promise<R>): Promise<R> {
    return this.#callAny(this.#now() + timeoutMs, use);
  }

  /**
   * Makes one call to the coordinator of a group, sent at most once. The time includes finding it and connecting to it.
   * One that does not answer, or has moved, is looked up again for the next call.
   */
  async callCoordinator<R extends BrokerResponse>(
    groupId: string,
    purpose: Purpose,
    timeoutMs: number,
    use: (link: BrokerLink) => Promise<R>,
  ): Promise<R> {
    const untilMs = this.#now() + timeoutMs;
    try {
      const node = await this.coordinator(groupId, Math.min(timeoutMs, MAX_FIND_MS));
      const leftMs = untilMs - this.#now();
      if (leftMs < MIN_CALL_MS) throw new KafkaError('UNREACHABLE', 'no time was left to call the coordinator');
      return await this.call(node, purpose, leftMs, use);
    } catch (error) {
      if (isUncoordinated(kafkaErrorCode(error))) this.forgetCoordinator(groupId);
      throw error;
    }
  }

  /** The node ID of the group's coordinator; remembered until `forgetCoordinator`. */
  coordinator(groupId: string, timeoutMs = DEFAULT_TIMEOUT_MS): Promise<number> {
    const deadlineMs = this.#now() + timeoutMs;
    let lookup = this.#coordinators.get(groupId);
    if (lookup === undefined) {
      lookup = this.#findCoordinator(groupId, deadlineMs);
      this.#coordinators.set(groupId, lookup);
      const failed = lookup;
      lookup.catch(() => {
        if (this.#coordinators.get(groupId) === failed) this.#coordinators.delete(groupId);
      });
    }
    return this.#deadlines.within(deadlineMs, lookup, noResponse);
  }

  forgetCoordinator(groupId: string): void {
    this.#coordinators.delete(groupId);
  }

  /** Closes all connections; later calls reject with CLOSED. Resolves when no socket is left. */
  async close(): Promise<void> {
    this.#deadlines.close();
    this.#refresher.close();
    await Promise.all([...this.#ending, ...[...this.#brokers.values()].map((broker) => broker.close())]);
  }

  /** From the cache if that is good enough, else from a refresh; throws the error of the topic. */
  async #topic(
    topic: string,
    timeoutMs: number,
    isGoodEnough: (found: TopicMetadata) => boolean,
  ): Promise<TopicMetadata> {
    if (this.#deadlines.closed) throw closedError();
    this.#topology.use(topic, this.#now());
    const known = () => {
      const found = this.#topology.known(topic);
      return found !== undefined && isGoodEnough(found) ? found : undefined;
    };
    const remembered = known();
    if (remembered !== undefined) return remembered;
    await this.#refreshed(timeoutMs, () => {
      if (known() !== undefined) return true;
      this.#topology.want(topic);
      return false;
    });
    return this.#topology.found(topic);
  }

  /** Waits for a refresh. One in flight is good enough if it started after the topic was marked stale. */
  async #refreshed(timeoutMs: number, isGoodEnough: () => boolean = () => false): Promise<void> {
    const refresh = async () => {
      await this.#refresher.ended();
      if (!isGoodEnough()) await this.#refresher.next();
    };
    await this.#deadlines.within(this.#now() + timeoutMs, refresh(), noResponse);
  }

  async #lookUpAddress(node: number, timeoutMs: number): Promise<BrokerAddress> {
    await this.#refreshed(timeoutMs);
    const address = this.#topology.brokers.get(node);
    if (address === undefined) throw new KafkaError('UNREACHABLE', `no broker has the node ID ${node}`);
    return address;
  }

  async #refresh(of: 'all' | 'wanted'): Promise<void> {
    const nowMs = this.#now();
    const wanted = this.#topology.takeWanted();
    await this.#metadata(of === 'all' ? this.#topology.inUse(nowMs) : wanted, nowMs + DEFAULT_TIMEOUT_MS);
  }

  async #metadata(topics: readonly string[] | 'all', deadlineMs: number, isForUse = false): Promise<MetadataResponse> {
    const requestNumber = this.#topology.nextRequestNumber();
    const response = await this.#callAny(deadlineMs, (link) => link.call('metadata', { topics }));
    for (const { name, errorCode } of isForUse ? response.topics : [])
      if (errorCode === undefined) this.#topology.use(name, this.#now());
    const led = this.#leadingSuspects();
    this.#topology.update(requestNumber, response);
    this.#closeUseless(led);
    this.#refresher.scheduleNext();
    return response;
  }

  async #findCoordinator(groupId: string, deadlineMs: number): Promise<number> {
    const found = await this.#callAny(deadlineMs, (link) => link.call('findCoordinator', { groupId }));
    this.#topology.addBroker(found.nodeId, found);
    return found.nodeId;
  }

  #callAny<R extends BrokerResponse>(deadlineMs: number, use: (link: BrokerLink) => Promise<R>): Promise<R> {
    return firstResponse(this.#options.runtime, this.#inOrder(), (broker) =>
      broker.call('control', Math.min(deadlineMs, this.#now() + MAX_ASK_MS), use),
    );
  }

  /** Brokers with an open connection first, then the others, then the remaining seeds; suspects last. */
  #inOrder(): Broker[] {
    const known = this.#shuffled([...this.#topology.brokers.values()]);
    const seeds = this.#shuffled(this.#options.seeds);
    const brokers = [...new Set([...known, ...seeds].map((address) => this.#broker(address)))];
    const rank = (broker: Broker) => (broker.isSuspect ? 2 : broker.isOpen('control') ? 0 : 1);
    return brokers.sort((one, other) => rank(one) - rank(other));
  }

  #shuffled(addresses: readonly BrokerAddress[]): BrokerAddress[] {
    const from = Math.floor(this.#options.runtime.random() * addresses.length);
    return [...addresses.slice(from), ...addresses.slice(0, from)];
  }

  #broker(address: BrokerAddress): Broker {
    if (this.#deadlines.closed) throw closedError();
    const key = formatHostPort(address);
    const known = this.#brokers.get(key);
    if (known !== undefined) return known;
    const { dialer, runtime, log = () => undefined } = this.#options;
    const broker = new Broker({
      dialer,
      address,
      runtime,
      deadlines: this.#deadlines,
      log,
      onResponse: () => {
        this.#lastResponseMs = this.#now();
      },
      onSilence: (isNew) => this.#onSilence(key, isNew),
    });
    this.#brokers.set(key, broker);
    return broker;
  }

  #onSilence(key: string, isNew: boolean): void {
    if (this.#deadlines.closed) return;
    for (const [node, address] of this.#topology.brokers) {
      if (formatHostPort(address) === key) this.#topology.markStaleLedBy(node);
    }
    if (isNew && this.#topology.inUse(this.#now()).length > 0) this.#refresher.next().catch(() => undefined);
  }

  #leadingSuspects(): ReadonlySet<number> {
    const nodes = [...this.#topology.brokers].filter(([node, address]) => {
      return this.#brokers.get(formatHostPort(address))?.isSuspect && this.#topology.leadsAny(node);
    });
    return new Set(nodes.map(([node]) => node));
  }

  /**
   * Closes useless connections: idle ones to addresses that no broker has any more, and those to suspects that have
   * just lost all their partitions, so that no call waits there until its deadline.
   */
  #closeUseless(led: ReadonlySet<number>): void {
    const nodes = new Map([...this.#topology.brokers].map(([node, address]) => [formatHostPort(address), node]));
    for (const [key, broker] of this.#brokers) {
      const node = nodes.get(key);
      if (node === undefined && (broker.calls === 0 || broker.isSuspect)) {
        this.#brokers.delete(key);
        this.#end(broker.close());
      } else if (node !== undefined && led.has(node) && !this.#topology.leadsAny(node)) {
        this.#end(broker.drop('control', 'group'));
      }
    }
  }

  #end(closing: Promise<void>): void {
    this.#ending.add(closing);
    void closing.finally(() => this.#ending.delete(closing));
  }

  #now(): number {
    return this.#options.runtime.monotonicMs();
  }
}

const noResponse = () => new KafkaError('NO_RESPONSE', 'no broker answered in time');

/** After this long without a response the next broker is called as well. */
const HEDGE_MS = 500;

/**
 * Sends a request that any broker can answer to one after the other, each once, and takes the first response.
 * Rejects when all have failed, with a rejected login if there was one. Rejects immediately when a broker answers with
 * a Kafka error, and when the cluster is closed.
 */
function firstResponse<B, T>(runtime: Runtime, brokers: readonly B[], send: (broker: B) => Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    let sent = 0;
    let failed = 0;
    let isSettled = false;
    let timer: Timer | undefined;
    let worst: unknown = new KafkaError('UNREACHABLE', 'no broker is known');
    const settle = (how: () => void) => {
      isSettled = true;
      timer?.cancel();
      how();
    };
    const fail = (error: unknown) => {
      if (isSettled) return;
      failed += 1;
      if (kafkaErrorCode(worst) !== 'LOGIN_REFUSED') worst = error;
      const errorCode = kafkaErrorCode(error);
      if (errorCode === 'CLOSED' || !isLinkError(errorCode)) settle(() => reject(error));
      else if (failed === brokers.length) settle(() => reject(worst));
      else if (failed === sent) next();
    };
    const next = () => {
      timer?.cancel();
      const broker = brokers[sent];
      if (isSettled || broker === undefined) return;
      sent += 1;
      timer = runtime.schedule(HEDGE_MS, next);
      send(broker).then((response) => {
        if (!isSettled) settle(() => resolve(response));
      }, fail);
    };
    if (brokers.length === 0) reject(worst);
    else next();
  });
}
