/**
 * The configuration of one broker that is its own controller, small and quick enough for a laptop and a test. The
 * BROKER listener lets it reach itself at an address that no test replaces with a proxy's.
 *
 * A fourth port adds a listener for clients behind a proxy, with `proxyPort` as the advertised port.
 */
export function kafkaProperties(
  dataDir: string,
  ports: readonly number[],
  more: Readonly<Record<string, string>> = {},
  proxyPort?: number,
): string {
  const [client, broker, controller, proxied] = ports;
  const proxy = proxied === undefined ? '' : `,PROXY://127.0.0.1:${proxied}`;
  const advertisedProxy = proxied === undefined ? '' : `,PROXY://127.0.0.1:${proxyPort}`;
  const properties = {
    'process.roles': 'broker,controller',
    'node.id': '1',
    'controller.quorum.voters': `1@127.0.0.1:${controller}`,
    listeners: `CLIENT://127.0.0.1:${client},BROKER://127.0.0.1:${broker},CONTROLLER://127.0.0.1:${controller}${proxy}`,
    'advertised.listeners': `CLIENT://127.0.0.1:${client},BROKER://127.0.0.1:${broker}${advertisedProxy}`,
    'listener.security.protocol.map': 'CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXY:PLAINTEXT',
    'inter.broker.listener.name': 'BROKER',
    'controller.listener.names': 'CONTROLLER',
    'log.dirs': dataDir,
    // a cluster of one
    'offsets.topic.replication.factor': '1',
    'offsets.topic.num.partitions': '1',
    'transaction.state.log.replication.factor': '1',
    'transaction.state.log.min.isr': '1',
    'transaction.state.log.num.partitions': '1',
    'share.coordinator.state.topic.replication.factor': '1',
    'share.coordinator.state.topic.min.isr': '1',
    'share.coordinator.state.topic.num.partitions': '1',
    // as idalloc expects it
    'auto.create.topics.enable': 'false',
    'group.initial.rebalance.delay.ms': '0',
    // otherwise half of the heap is used for the cleaner's buffer
    'log.cleaner.dedupe.buffer.size': '16777216',
    ...more,
  };
  return `${Object.entries(properties)
    .map(([name, value]) => `${name}=${value}`)
    .join('\n')}\n`;
}
