import { EventEmitter } from 'node:events';
import { createRequire } from 'node:module';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { mendKafkajs } from '../../../src/adapters/kafka/kafkajs-mends.ts';

const require = createRequire(import.meta.url);
const logger = { namespace: () => logger, debug: () => {}, info: () => {}, error: () => {} };

mendKafkajs();

afterEach(() => {
  vi.useRealTimers();
});

/** A connection of kafkajs whose sockets are counted; `connected` tells it that one of them is there. */
function connection() {
  const Connection = require('kafkajs/src/network/connection.js');
  const sockets: (EventEmitter & { connected: () => void; calls: string[] })[] = [];
  const socketFactory = ({ onConnect }: { onConnect: () => void }) => {
    const calls: string[] = [];
    const call = (name: string) => () => void calls.push(name);
    const methods = { end: call('end'), unref: () => {}, destroy: call('destroy') };
    const socket = new EventEmitter().once('connect', onConnect);
    sockets.push(Object.assign(socket, methods, { calls, connected: () => socket.emit('connect') }));
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

  it('is not ended by the end of the socket that it had before', async () => {
    const { sockets, connection: shared } = connection();
    const first = shared.connect();
    sockets[0]?.connected();
    await first;
    await shared.disconnect();
    const second = shared.connect();
    expect(sockets[0]?.calls).toEqual(['end', 'destroy']);
    sockets[0]?.emit('end');
    sockets[0]?.emit('error', new Error('reset'));
    sockets[1]?.connected();
    await second;
    sockets[0]?.emit('end');
    await new Promise(setImmediate);
    expect([shared.isConnected(), sockets[1]?.calls]).toEqual([true, []]);
    await shared.disconnect();
  });

  it('does not take a socket that comes too late for the one that it has opened since', async () => {
    vi.useFakeTimers();
    const { sockets, connection: shared } = connection();
    const late = expect(shared.connect()).rejects.toThrow('Connection timeout');
    await vi.advanceTimersByTimeAsync(3_000);
    await late;
    const second = shared.connect();
    sockets[0]?.connected();
    expect(shared.isConnected()).toBe(false);
    sockets[1]?.connected();
    expect(await second).toBe(true);
    await shared.disconnect();
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

/** A group of kafkajs whose coordinator answers joins and syncs as told, each answer once and the last for good. */
function groupOf(answers: Record<'join' | 'sync', readonly (number | object)[]>) {
  const Broker = require('kafkajs/src/broker/index.js');
  const ConsumerGroup = require('kafkajs/src/consumer/consumerGroup.js');
  const { createErrorFromCode } = require('kafkajs/src/protocol/error.js');
  const asked: string[] = [];
  const send = async (api: 'join' | 'sync') => {
    const answer = answers[api][Math.min(asked.filter((before) => before === api).length, answers[api].length - 1)];
    asked.push(api);
    if (typeof answer === 'number') throw createErrorFromCode(answer);
    return answer;
  };
  const sendRequest = Object.getOwnPropertySymbols(Broker.prototype).find(({ description }) =>
    description?.endsWith('sendRequest'),
  );
  if (sendRequest === undefined) throw new Error('a broker of kafkajs sends requests otherwise');
  const lookupRequest = (apiKey: number) => () => (apiKey === JOIN_GROUP ? 'join' : 'sync');
  const coordinator = Object.assign(Object.create(Broker.prototype), { lookupRequest, [sendRequest]: send });
  const cluster = {
    findGroupCoordinator: async () => coordinator,
    findTopicPartitionMetadata: () => [{ partitionId: 0 }],
    committedOffsets: () => ({}),
  };
  const events = new EventEmitter();
  const options = { cluster, groupId: 'g', topics: ['t'], assigners: [], logger, retry: { initialRetryTime: 1 } };
  return { asked, group: new ConsumerGroup({ ...options, instrumentationEmitter: events }) };
}

const JOIN_GROUP = 11;
const LOADING = 14;
const JOINED = { generationId: 1, leaderId: 'another', memberId: 'this', members: [], groupProtocol: 'x' };
const SYNCED = { memberAssignment: Buffer.alloc(0) };

describe('a group of kafkajs', () => {
  it('is joined as soon as its coordinator has loaded', async () => {
    const { asked, group } = groupOf({ join: [LOADING, LOADING, JOINED], sync: [LOADING, SYNCED] });
    await group.joinAndSync();
    expect(asked).toEqual(['join', 'join', 'join', 'sync', 'join', 'sync']);
  });

  it('is not joined when that is refused for another cause', async () => {
    const { asked, group } = groupOf({ join: [30], sync: [SYNCED] });
    await expect(group.joinAndSync()).rejects.toMatchObject({ type: 'GROUP_AUTHORIZATION_FAILED' });
    expect(asked).toEqual(['join']);
  });
});

/** A cluster of kafkajs with one broker that can't be reached, and others that do as told. */
function clusterOf(brokers: Record<string, object | Error>) {
  const Cluster = require('kafkajs/src/cluster/index.js');
  const BrokerPool = require('kafkajs/src/cluster/brokerPool.js');
  const findBroker = async ({ nodeId }: { nodeId: string }) => {
    const broker = brokers[nodeId];
    if (broker instanceof Error) throw broker;
    return broker;
  };
  const findConnectedBroker = async () => Object.values(brokers).find((broker) => !(broker instanceof Error));
  const refreshMetadataIfNecessary = async () => undefined;
  const own = { brokers, findBroker, findConnectedBroker, refreshMetadataIfNecessary };
  const brokerPool = Object.assign(Object.create(BrokerPool.prototype), own);
  const retrier = (run: (bail: (error: unknown) => never) => unknown) =>
    run((error) => {
      throw error;
    });
  return Object.assign(Object.create(Cluster.prototype), { brokerPool, retrier, findBroker });
}

describe('a cluster of kafkajs', () => {
  const dead = new Error('refused');

  it('asks another broker when one can not be reached, and tells why when none can', async () => {
    const cluster = clusterOf({ 1: dead, 2: { metadata: async () => 'known' }, 3: dead });
    for (let i = 0; i < 20; i += 1) expect(await cluster.metadata({ topics: ['t'] })).toBe('known');
    await expect(clusterOf({ 1: dead, 2: dead }).metadata({ topics: ['t'] })).rejects.toBe(dead);
  });

  it('tells what the brokers refuse the metadata for', async () => {
    const leaderless = Object.assign(new Error('no leader'), { type: 'LEADER_NOT_AVAILABLE' });
    const metadata = () => Promise.reject(leaderless);
    await expect(clusterOf({ 1: { metadata } }).metadata({ topics: ['t'] })).rejects.toBe(leaderless);
  });

  it('asks the new leader for offsets after a leader has moved', async () => {
    const topics = [{ topic: 't', partitions: [{ partition: 0 }], fromBeginning: true }];
    const responses = [{ topic: 't', partitions: [{ partition: 0, offset: '7' }] }];
    const moved = () => Promise.reject(new Error('not the leader'));
    const cluster = clusterOf({ 1: { listOffsets: moved }, 2: { listOffsets: async () => ({ responses }) } });
    let leader = '1';
    cluster.findLeaderForPartitions = () => ({ [leader]: [0] });
    cluster.refreshMetadata = async () => {
      leader = '2';
    };
    expect(await cluster.fetchTopicsOffset(topics)).toEqual(responses);
  });
});
