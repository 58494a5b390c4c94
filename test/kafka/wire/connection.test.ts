import { expect, test } from 'vitest';
import { Connection } from '../../../src/kafka/wire/connection.ts';
import { KafkaError } from '../../../src/kafka/wire/kafka-error.ts';
import type { BrokerLink, Dialer } from '../../../src/kafka/wire/port.ts';
import { scriptedLink } from '../../support/scripted-link.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';

/** A connection that is being dialled, and how often its owner has heard of its end. */
function dialled(dialer: Dialer) {
  const runtime = new VirtualRuntime();
  let ends = 0;
  const address = { host: 'broker', port: 9092 };
  const onEnd = () => {
    ends += 1;
  };
  return { runtime, connection: new Connection({ dialer, address, runtime, idleMs: 5_000, onEnd }), ends: () => ends };
}

/** A link that ends as soon as it is closed. */
function closable(): BrokerLink {
  const { promise: ended, resolve } = Promise.withResolvers<void>();
  return { ...scriptedLink({ heartbeat: async () => ({ throttleMs: 0 }) }), ended, close: () => resolve() };
}

test('a connection reports its end once, though it is closed twice and its socket ends as well', async () => {
  const { runtime, connection, ends } = dialled({ dial: async () => closable() });
  await connection.run(
    (link) => link.call('heartbeat', { groupId: 'g', generation: 1, memberId: 'm' }),
    () => false,
  );
  await Promise.all([connection.close(), connection.close()]);
  expect([ends(), connection.isOpen, runtime.pending]).toEqual([1, false, 0]);
});

test('a dial that fails reports the end once, though it is closed afterwards', async () => {
  const { runtime, connection, ends } = dialled({
    dial: () => Promise.reject(new KafkaError('UNREACHABLE', 'refused')),
  });
  const call = connection.run(
    async () => 'never',
    () => false,
  );
  await expect(call).rejects.toMatchObject({ errorCode: 'UNREACHABLE' });
  await connection.close();
  expect([ends(), runtime.pending]).toEqual([1, 0]);
});
