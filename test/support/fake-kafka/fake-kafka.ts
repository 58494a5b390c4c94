import type { BrokerAddress, Dialer } from '../../../src/kafka/wire/port.ts';
import { Cluster, type ClusterOptions } from './cluster.ts';
import { dialerOf } from './link.ts';
import { type Host, Network } from './network.ts';
import { addressOf } from './view.ts';

export interface FakeKafkaOptions extends ClusterOptions {
  /** How long a message takes normally. */
  readonly delayMs?: () => number;
}

/** Simulated brokers behind the wire port, and the network between them and their clients. */
export interface FakeKafka {
  readonly cluster: Cluster;
  readonly network: Network;
  readonly seeds: readonly BrokerAddress[];
  /** Opens connections of one host; of the test itself by default. */
  dialer(host?: Host): Dialer;
}

export function fakeKafka(options: FakeKafkaOptions): FakeKafka {
  const cluster = new Cluster(options);
  const { clock, delayMs } = options;
  const network = new Network(delayMs === undefined ? { clock } : { clock, delayMs });
  return {
    cluster,
    network,
    seeds: [...cluster.brokers.keys()].map((node) => {
      const { host, port } = addressOf(node);
      return { host, port };
    }),
    dialer: (host) => dialerOf(cluster, network, host),
  };
}
