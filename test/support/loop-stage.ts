import type { Tail } from '../../src/kafka/loops/tail.ts';
import type { TailChunk, TailSink } from '../../src/kafka/loops/tail-port.ts';
import type { BrokerResponse } from '../../src/kafka/wire/api.ts';
import type { Purpose } from '../../src/kafka/wire/broker.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import type { BrokerLink } from '../../src/kafka/wire/port.ts';
import type { FetchRequest, FetchResponse, ProduceRequest } from '../../src/kafka/wire/record-apis.ts';
import { type FakeKafkaOptions, fakeKafka } from './fake-kafka/fake-kafka.ts';
import { VirtualRuntime } from './virtual-runtime.ts';

export const T = 'topic';

/** A call of a loop to a broker, and when it was made. */
export interface Asked<R> {
  readonly node: number;
  readonly purpose: Purpose;
  readonly atMs: number;
  readonly request: R;
}

/** Simulated brokers, the real cluster client over them, and a virtual clock; records the calls. */
export class LoopStage {
  readonly runtime = new VirtualRuntime();
  readonly kafka: ReturnType<typeof fakeKafka>;
  readonly cluster: Cluster;
  /** With all that is fetched, whether the request names it or is in its session. */
  readonly fetches: Asked<FetchRequest>[] = [];
  /** The fetches as they were sent. */
  readonly sent: FetchRequest[] = [];
  readonly produces: Asked<ProduceRequest>[] = [];
  /** Changes the answer to a fetch on its way. */
  distort: (answer: FetchResponse) => FetchResponse = (answer) => answer;

  constructor(options: Omit<FakeKafkaOptions, 'clock'> = {}) {
    this.kafka = fakeKafka({ clock: this.runtime, delayMs: () => 1, ...options });
    const { runtime } = this;
    const cluster = new Cluster({ dialer: this.kafka.dialer(), seeds: this.kafka.seeds, runtime });
    const call = cluster.call.bind(cluster);
    cluster.call = <R extends BrokerResponse>(
      node: number,
      purpose: Purpose,
      timeoutMs: number,
      use: (link: BrokerLink) => Promise<R>,
    ) => call(node, purpose, timeoutMs, (link) => use(this.#noting(node, purpose, link)));
    this.cluster = cluster;
  }

  #noteFetch(node: number, purpose: Purpose, request: FetchRequest): void {
    const all = { ...request, partitions: this.kafka.cluster.positionsOf(request) };
    this.sent.push(request);
    this.fetches.push({ node, purpose, atMs: this.runtime.monotonicMs(), request: all });
  }

  #noting(node: number, purpose: Purpose, link: BrokerLink): BrokerLink {
    const note = <R>(to: Asked<R>[], request: R) => {
      to.push({ node, purpose, atMs: this.runtime.monotonicMs(), request });
    };
    return {
      ended: link.ended,
      close: () => link.close(),
      call: async (api, request) => {
        if (api === 'produce') note(this.produces, request as ProduceRequest);
        if (api === 'fetch') this.#noteFetch(node, purpose, request as FetchRequest);
        const answer = await link.call(api, request);
        return api === 'fetch' ? (this.distort(answer as FetchResponse) as typeof answer) : answer;
      },
    };
  }

  /** Offsets requested in fetches of one partition. */
  asked(partition: number, topic = T): number[] {
    return this.fetches.flatMap(({ request }) =>
      request.partitions.flatMap((one) => (one.topic === topic && one.partition === partition ? [one.offset] : [])),
    );
  }

  /** Appends `count` records in one batch; values are their offsets, padded to `bytes`. */
  send(partition: number, count: number, bytes = 1, topic = T): void {
    const from = this.kafka.cluster.partition(topic, partition).log.end;
    const records = Array.from({ length: count }, (_, i) => {
      return { key: null, value: Buffer.from(String(from + i).padEnd(bytes, ' ')) };
    });
    this.kafka.cluster.send(topic, partition, records);
  }

  /** Lets time pass until the condition holds, which is checked every `everyMs`. */
  async until(what: () => boolean, everyMs = 1): Promise<void> {
    const { runtime } = this;
    const look = async () => {
      while (!what()) await runtime.sleep(everyMs);
    };
    await runtime.until(look());
  }

  async pass(ms: number): Promise<void> {
    await this.runtime.pass(ms);
  }

  async close(...tails: readonly Tail[]): Promise<void> {
    await this.runtime.until(Promise.all(tails.map((tail) => tail.close())));
    await this.runtime.until(this.cluster.close());
  }
}

/** Collects chunks; while it is held, a delivery does not end. */
export class Collected implements TailSink {
  readonly chunks: TailChunk[] = [];
  #hold: PromiseWithResolvers<void> | undefined;

  get offsets(): number[] {
    return this.chunks.flatMap(({ records }) => records.map(({ offset }) => offset));
  }

  hold(): void {
    this.#hold = Promise.withResolvers();
  }

  release(): void {
    this.#hold?.resolve();
    this.#hold = undefined;
  }

  async deliver(chunk: TailChunk): Promise<void> {
    this.chunks.push(chunk);
    await this.#hold?.promise;
  }
}

export function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, i) => from + i);
}
