/**
 * The configuration of one broker that is its own controller, small and quick enough for a laptop and a test. The
 * BROKER listener is the one by which it reaches itself.
 */
export function kafkaProperties(
  dataDir: string,
  ports: readonly number[],
  more: Readonly<Record<string, string>> = {},
): string {
  const [client, broker, controller] = ports;
  const properties = {
    'process.roles': 'broker,controller',
    'node.id': '1',
    'controller.quorum.voters': `1@127.0.0.1:${controller}`,
    listeners: `CLIENT://127.0.0.1:${client},BROKER://127.0.0.1:${broker},CONTROLLER://127.0.0.1:${controller}`,
    'advertised.listeners': `CLIENT://127.0.0.1:${client},BROKER://127.0.0.1:${broker}`,
    'listener.security.protocol.map': 'CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT',
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
