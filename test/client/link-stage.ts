import type { Runtime, Timer } from '../../src/async/runtime.ts';
import { type LinkDependencies, openLink } from '../../src/client/kafka-link.ts';
import type { IncomingReply } from '../../src/client/requester.ts';
import type { BrokerAddress, Dialer } from '../../src/kafka/wire/port.ts';
import { recordsOf } from '../support/fake-kafka/batches.ts';
import { Cluster } from '../support/fake-kafka/cluster.ts';
import { dialerOf } from '../support/fake-kafka/link.ts';
import { Network } from '../support/fake-kafka/network.ts';
import { addressOf } from '../support/fake-kafka/view.ts';
import { FakeRuntime } from './stage.ts';

const REQUESTS = 'id.requests';
export const REPLIES = 'id.replies.a';
export const NODES = 3;
/** Three brokers: partition 0 of each topic is led by broker 1 and followed by 2, partition 1 by 2 and 3. */
export class LinkStage {
  readonly clock = new FakeRuntime();
  readonly network = new Network({ clock: this.clock });
  readonly kafka = new Cluster({ clock: this.clock, nodes: NODES });
  readonly replies: IncomingReply[] = [];
  readonly faults: Error[] = [];
  /** The reply topics whose requests were to be sent again. */
  readonly moved: string[] = [];
  /** Timers of the link itself. */
  readonly timers = new Set<Timer>();
  seeds: readonly BrokerAddress[] = [addressOf(1)];
  /** Besides dialer, seeds and runtime. */
  wire: Partial<LinkDependencies> = {};
  dialer: Dialer = dialerOf(this.kafka, this.network);

  constructor() {
    this.kafka.createTopic(REQUESTS, { partitions: 2, replicas: 2 });
    this.kafka.createTopic(REPLIES, { partitions: 2, replicas: 2 });
  }

  open(options: Partial<Parameters<typeof openLink>[1]> = {}) {
    const { dialer, wire } = this;
    const seeds = () => this.seeds;
    return openLink(
      {
        ...wire,
        dialer,
        get seeds() {
          return seeds();
        },
        runtime: this.runtime(),
      },
      { replyTopic: REPLIES, ...options },
      {
        onReply: (reply) => this.replies.push(reply),
        onMoved: (topic) => this.moved.push(topic),
        onError: (error) => this.faults.push(error),
      },
    );
  }

  /** Lets the clock run until the work is done, for a minute at most. */
  async during<T>(work: Promise<T>): Promise<T> {
    let isDone = false;
    const done = () => {
      isDone = true;
    };
    work.then(done, done);
    for (let waitedMs = 0; !isDone && waitedMs < 60_000; waitedMs += 50) await this.clock.pass(50);
    if (!isDone) throw new Error('the work was not done within a minute');
    return work;
  }

  reply(value: string, more: { topic?: string; partition?: number; headers?: Record<string, string> } = {}): void {
    const { topic = REPLIES, partition = 0, headers = {} } = more;
    this.kafka.send(topic, partition, [{ key: Buffer.from('c-1'), value: Buffer.from(value), headers }]);
  }

  get received(): string[] {
    return this.replies.map(({ value }) => String(value));
  }

  get sent() {
    const all = this.kafka.topics.get(REQUESTS)?.partitions ?? [];
    return all.flatMap(({ number, log }) =>
      log
        .batches()
        .flatMap(recordsOf)
        .map(({ key, value, headers }) => {
          const texts = Object.entries(headers ?? {}).map(([name, text]) => [name, String(text)]);
          return { partition: number, key: String(key), value: String(value), headers: Object.fromEntries(texts) };
        }),
    );
  }

  get connections(): number {
    return [...this.kafka.brokers.values()].reduce((sum, { connections }) => sum + connections.size, 0);
  }

  runtime(): Runtime {
    const { clock, timers } = this;
    const schedule = (delayMs: number, run: () => void): Timer => {
      const due = clock.schedule(delayMs, () => {
        timers.delete(timer);
        run();
      });
      const timer = {
        cancel: () => {
          timers.delete(timer);
          due.cancel();
        },
      };
      timers.add(timer);
      return timer;
    };
    return {
      monotonicMs: () => clock.monotonicMs(),
      wallMs: () => clock.wallMs(),
      random: () => clock.random(),
      uuid: () => clock.uuid(),
      busyMs: () => clock.busyMs(),
      nextTurn: () => clock.nextTurn(),
      sleep: (delayMs, signal) => clock.sleep(delayMs, signal),
      schedule,
    };
  }
}
