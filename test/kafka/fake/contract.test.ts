import { RUNTIME } from '../../../src/runtime.ts';
import { fakeKafka } from '../../support/fake-kafka/fake-kafka.ts';
import { wireContract } from '../../support/wire-contract.ts';

wireContract('simulated brokers', () => {
  const kafka = fakeKafka({
    clock: RUNTIME,
    nodes: 3,
    delayMs: () => RUNTIME.random(),
    replicationMs: () => RUNTIME.random(),
    propagationMs: () => 5 * RUNTIME.random(),
    groups: { initialDelayMs: 10, loadMs: () => 5 },
  });
  return { dialer: kafka.dialer(), seeds: kafka.seeds, replicas: 3, close: () => {} };
});
