import net from 'node:net';
import kafkajs, { type ISocketFactory, type Kafka } from 'kafkajs';
import { createSocketFactory } from '../../src/kafka/wire/kafkajs-modules.ts';

/** Retries after 5, 10, 20 ms and so on, up to 200 ms, for about 10 s: longer than the election of a leader. */
export const PATIENT = { initialRetryTime: 5, maxRetryTime: 200, retries: 54 } as const;

/**
 * Opens sockets for kafkajs, which disconnects a connection again and again while its broker is away. For that it calls
 * `unref`, which on a socket that is gone would wait for it to be connected: one more listener each time, until Node
 * warns of a leak.
 */
const openSocket: ISocketFactory = (args) => {
  const socket = createSocketFactory()(args);
  const unref = () => (socket.destroyed ? socket : net.Socket.prototype.unref.call(socket));
  return Object.assign(socket, { unref });
};

/** A kafkajs client for tests, so that an independent client checks what the product writes and reads. */
export function testKafka(brokers: readonly string[]): Kafka {
  return new kafkajs.Kafka({
    clientId: 'test',
    brokers: [...brokers],
    socketFactory: openSocket,
    connectionTimeout: 3_000,
    requestTimeout: 10_000,
    retry: PATIENT,
    logLevel: kafkajs.logLevel.NOTHING,
  });
}
