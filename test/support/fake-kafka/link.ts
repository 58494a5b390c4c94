import { KafkaError, type KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type {
  ApiName,
  BrokerAddress,
  BrokerLink,
  Dialer,
  RequestOf,
  ResponseOf,
} from '../../../src/kafka/wire/port.ts';
import { type Broker, nobody } from './broker.ts';
import type { Cluster } from './cluster.ts';
import type { Reply } from './group-member.ts';
import { HERE, type Host, type Message, type Network } from './network.ts';
import { addressOf } from './view.ts';

/** Connects a host to the brokers of a cluster, over a network. */
export function dialerOf(cluster: Cluster, network: Network, host: Host = HERE, clientId = host.name): Dialer {
  return {
    dial: (address, signal) => dial({ cluster, network, host, clientId }, address, signal),
  };
}

interface Ends {
  readonly cluster: Cluster;
  readonly network: Network;
  readonly host: Host;
  readonly clientId: string;
}

/** A broker that is frozen or unreachable stays silent; one that is down refuses. */
function dial(ends: Ends, address: BrokerAddress, signal: AbortSignal): Promise<BrokerLink> {
  const { cluster, network, host, clientId } = ends;
  const { promise, resolve, reject } = Promise.withResolvers<BrokerLink>();
  const where = `${address.host}:${address.port}`;
  let isOpen = true;
  const end = (how: () => void): void => {
    if (!isOpen) return;
    isOpen = false;
    signal.removeEventListener('abort', stop);
    how();
  };
  const stop = (): void => end(() => reject(new KafkaError('CLOSED', `no connection to ${where} is wanted any more`)));
  const refuse = (): void =>
    host.deliver(() => end(() => reject(new KafkaError('UNREACHABLE', `${where} refuses connections`))));
  if (signal.aborted) {
    stop();
    return promise;
  }
  signal.addEventListener('abort', stop);
  const broker = [...cluster.brokers.values()].find(({ node }) => {
    const known = addressOf(node);
    return known.host === address.host && known.port === address.port;
  });
  const fate = broker === undefined ? 0 : network.dialFate(broker.node);
  if (fate === 'lost') return promise;
  cluster.clock.schedule(fate === 'reset' ? 0 : fate, () => {
    if (broker === undefined || fate === 'reset') return refuse();
    if (!network.passes(host, broker.node)) return;
    if (broker.state === 'down') return refuse();
    broker.deliver(() => host.deliver(() => end(() => resolve(new FakeLink(ends, broker, clientId)))));
  });
  return promise;
}

/** One direction of one connection: messages arrive in order. */
interface Way {
  /** A message was lost: later ones are lost as well. */
  isLost: boolean;
  /** A message did not get through: neither do those after it. */
  isCut: boolean;
  lastMs: number;
}

interface QueuedCall {
  readonly serve: (done: () => void) => void;
}

/**
 * A connection. The broker serves its calls one after the other. Calls sent before the connection ended still arrive,
 * but their answers are dropped.
 */
class FakeLink implements BrokerLink {
  readonly ended: Promise<void>;
  readonly #ends: Ends;
  readonly #broker: Broker;
  readonly #clientId: string;
  readonly #clusterId: string;
  readonly #there: Way = { isLost: false, isCut: false, lastMs: 0 };
  readonly #back: Way = { isLost: false, isCut: false, lastMs: 0 };
  readonly #open = new Set<(error: KafkaError) => void>();
  /** At the broker: the calls that have arrived; the first is being served. */
  readonly #queue: QueuedCall[] = [];
  /** At the host: the answers that it has not taken yet. */
  readonly #arrived: Array<() => void> = [];
  readonly #isOver: () => void;
  #isClosed = false;
  readonly #break = (): void => this.#ends.host.deliver(() => this.#end('the broker ended the connection'));

  constructor(ends: Ends, broker: Broker, clientId: string) {
    this.#ends = ends;
    this.#broker = broker;
    this.#clientId = clientId;
    this.#clusterId = ends.cluster.clusterId;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.ended = promise;
    this.#isOver = resolve;
    broker.connections.add(this.#break);
  }

  close(): void {
    this.#end('the connection was closed');
  }

  call<A extends ApiName>(call: A, request: RequestOf<A>): Promise<ResponseOf<A>> {
    const { promise, resolve, reject } = Promise.withResolvers<ResponseOf<A>>();
    if (this.#isClosed) {
      reject(new KafkaError('CONNECTION_LOST', `${call}: the connection has ended`));
      return promise;
    }
    const { observer } = this.#ends.host;
    const lose = (error: KafkaError): void => {
      observer?.ended(call, request, false);
      reject(error);
    };
    this.#open.add(lose);
    let isAnswered = false;
    const answered = (how: () => void): void => {
      if (!this.#open.delete(lose)) return;
      isAnswered = true;
      observer?.ended(call, request, true);
      how();
    };
    const carry = (way: 'there' | 'back', arrive: () => void): void =>
      this.#carry({ call, request, way } as Message, arrive);
    const reply: Reply<ResponseOf<A>> = {
      give: (answer) => carry('back', () => answered(() => resolve(answer))),
      refuse: (errorCode: KafkaErrorCode) =>
        carry('back', () => answered(() => reject(new KafkaError(errorCode, `${call}: ${errorCode}`)))),
    };
    observer?.sent(call, request);
    carry('there', () => this.#serve(call, request, reply, () => isAnswered));
    return promise;
  }

  #serve<A extends ApiName>(
    call: A,
    request: RequestOf<A>,
    reply: Reply<ResponseOf<A>>,
    isAnswered: () => boolean,
  ): void {
    const serve = (done: () => void): void => {
      const once = (answer: () => void): void => {
        answer();
        done();
      };
      const served = {
        give: (given: ResponseOf<A>) => once(() => reply.give(given)),
        refuse: (errorCode: KafkaErrorCode) => once(() => reply.refuse(errorCode)),
      };
      this.#broker.serve(call, request, served, this.#clientId);
    };
    this.#queue.push({ serve });
    if (this.#queue.length === 1) this.#serveNext();
    const againMs = this.#ends.network.doubledAfterMs(call);
    if (againMs === undefined) return;
    const { broker, clientId } = { broker: this.#broker, clientId: this.#clientId };
    const isDone = () =>
      isAnswered() && 'topic' in request && this.#ends.network.isDoneOnceAnswered(String(request.topic));
    this.#ends.cluster.clock.schedule(againMs, () => {
      if (this.#isThere && !isDone())
        broker.deliver(() => broker.serve(call, request, nobody<ResponseOf<A>>(), clientId));
    });
  }

  /** Whether its cluster still exists: another one under the same addresses gets nothing that was sent to it. */
  get #isThere(): boolean {
    return this.#clusterId === this.#ends.cluster.clusterId;
  }

  #serveNext(): void {
    this.#queue[0]?.serve(() => {
      this.#queue.shift();
      this.#serveNext();
    });
  }

  /** One message in one direction. */
  #carry(message: Message, arrive: () => void): void {
    const { cluster, network, host } = this.#ends;
    const { node } = this.#broker;
    const way = message.way === 'there' ? this.#there : this.#back;
    if (way.isLost) return;
    const fate = network.fateOf(message, host, node);
    if (fate === 'reset') cluster.clock.schedule(0, this.#break);
    way.isLost = typeof fate === 'string';
    if (typeof fate === 'string') return;
    const { clock } = cluster;
    way.lastMs = Math.max(way.lastMs, clock.monotonicMs() + fate);
    clock.schedule(way.lastMs - clock.monotonicMs(), () => {
      way.isCut ||= !network.passes(host, node);
      if (way.isCut) return;
      if (message.way === 'there') {
        if (this.#isThere) this.#broker.deliver(arrive);
      } else {
        // A resuming host takes what arrived meanwhile in any order, but the answers of one connection in order.
        this.#arrived.push(arrive);
        host.deliver(() => this.#arrived.shift()?.());
      }
    });
  }

  #end(why: string): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#broker.connections.delete(this.#break);
    for (const lose of [...this.#open]) lose(new KafkaError('CONNECTION_LOST', why));
    this.#open.clear();
    this.#isOver();
  }
}
