import { RUNTIME } from '../../../src/runtime.ts';
import { fakeKafka } from '../../support/fake-kafka/fake-kafka.ts';
import { seeded } from '../../support/seeded.ts';
import { wireContract } from '../../support/wire-contract.ts';

wireContract('simulated brokers', () => {
  const random = seeded('delays of brokers').next;
  const kafka = fakeKafka({
    clock: RUNTIME,
    nodes: 3,
    delayMs: random,
    replicationMs: random,
    propagationMs: () => 5 * random(),
    groups: { initialDelayMs: 10, loadMs: () => 5 },
  });
  return { dialer: kafka.dialer(), seeds: kafka.seeds, replicas: 3, close: () => {} };
});
