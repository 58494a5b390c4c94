import { EventEmitter } from 'node:events';
import { createRequire } from 'node:module';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { mendKafkajs } from '../../../src/adapters/kafka/kafkajs-mends.ts';

const require = createRequire(import.meta.url);
const logger = { namespace: () => logger, debug: () => {}, error: () => {} };

mendKafkajs();

afterEach(() => {
  vi.useRealTimers();
});

/** A connection of kafkajs whose sockets are counted; `connected` tells it that the one opened last is there. */
function connection() {
  const Connection = require('kafkajs/src/network/connection.js');
  const sockets: (EventEmitter & { connected: () => void })[] = [];
  const socketFactory = ({ onConnect }: { onConnect: () => void }) => {
    const socket = Object.assign(new EventEmitter(), { connected: onConnect, end: () => {}, unref: () => {} });
    sockets.push(socket);
    return socket;
  };
  const options = { host: 'x', port: 1, connectionTimeout: 3_000, enforceRequestTimeout: false };
  return { sockets, connection: new Connection({ ...options, logger, socketFactory }) };
}

describe('a connection of kafkajs', () => {
  it('opens one socket for all who find it closed, and another once that has ended', async () => {
    const { sockets, connection: shared } = connection();
    const all = [shared.connect(), shared.connect(), shared.connect()];
    expect(sockets).toHaveLength(1);
    sockets[0]?.connected();
    expect(await Promise.all(all)).toEqual([true, true, true]);
    expect(await shared.connect()).toBe(true);
    await shared.disconnect();
    const again = shared.connect();
    expect(sockets).toHaveLength(2);
    sockets[1]?.connected();
    expect(await again).toBe(true);
    await shared.disconnect();
  });

  it('fails for all when it can not be had, and is tried anew by the next', async () => {
    const { sockets, connection: shared } = connection();
    const all = [shared.connect(), shared.connect()];
    sockets[0]?.emit('error', new Error('refused'));
    const outcomes = await Promise.allSettled(all);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    shared.connect().catch(() => undefined);
    expect(sockets).toHaveLength(2);
    sockets[1]?.connected();
    await shared.disconnect();
  });

  it('does not wait without end for one that hangs up before it was there', async () => {
    vi.useFakeTimers();
    const { sockets, connection: shared } = connection();
    const connected = expect(shared.connect()).rejects.toThrow('Connection timeout');
    sockets[0]?.emit('end');
    await vi.advanceTimersByTimeAsync(10_000);
    await connected;
  });

  it('starts no timer for a connection with nothing to send', () => {
    const RequestQueue = require('kafkajs/src/network/requestQueue/index.js');
    const queue = new RequestQueue({ logger: { debug: () => {} }, clientId: 'x', broker: 'y' });
    queue.scheduleCheckPendingRequests();
    expect(queue.throttleCheckTimeoutId).toBeNull();
    queue.pending.push({});
    queue.scheduleCheckPendingRequests();
    expect(queue.throttleCheckTimeoutId).not.toBeNull();
    queue.destroy();
  });
});
