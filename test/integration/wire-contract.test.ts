import { dialerOf } from '../../src/kafka/wire/kafkajs-dialer.ts';
import { seedsOf } from '../../src/kafka/wire/settings.ts';
import { suiteServers } from '../support/servers.ts';
import { wireContract } from '../support/wire-contract.ts';

wireContract('a Kafka broker', () => ({
  dialer: dialerOf({ clientId: 'contract' }),
  seeds: seedsOf(suiteServers().brokers),
  close: () => {},
}));
