import { expect, test } from 'vitest';
import { KafkaError } from '../../../src/kafka/wire/kafka-error.ts';
import type { ApiName, RequestOf } from '../../../src/kafka/wire/port.ts';
import { type Watch, watchedDialer } from '../../../src/kafka/wire/watched-dialer.ts';
import { type Answers, scriptedLink } from '../../support/scripted-link.ts';

const ADDRESS = { host: 'broker', port: 9092 };
const MEMBER = { groupId: 'g', generation: 1, memberId: 'm' };
const JOIN = { ...MEMBER, sessionTimeoutMs: 1, rebalanceTimeoutMs: 1, protocolType: 'consumer', protocols: [] };
const JOINED = { throttleMs: 0, generation: 1, protocol: '', leaderId: '', memberId: 'm', members: [] };

/** Makes one call, and returns what the watch was told. */
async function told<A extends ApiName>(answers: Answers, api: A, request: RequestOf<A>): Promise<unknown[]> {
  const seen: unknown[] = [];
  const watch: Watch = {
    onLogin: () => {},
    onDialError: ({ host }, { errorCode }) => seen.push([host, errorCode]),
    onRight: ({ on, name, operation }, errorCode) => seen.push([on, name, operation, errorCode]),
    onJoin: ({ groupId }, refusal) => seen.push([groupId, refusal]),
  };
  const link = await watchedDialer({ dial: async () => scriptedLink(answers) }, watch).dial(
    ADDRESS,
    new AbortController().signal,
  );
  await link.call(api, request).catch(() => undefined);
  return seen;
}

const failing = (errorCode: string) => async () => {
  throw new KafkaError(errorCode, 'from the test');
};

test('each topic of a response shows the right on it, unless its error came before authorization', async () => {
  const topics = [undefined, 'TOPIC_AUTHORIZATION_FAILED', 'LEADER_NOT_AVAILABLE'].map((errorCode, i) => ({
    name: `t${i}`,
    errorCode,
    partitions: [],
  }));
  const metadata = async () => ({ throttleMs: 0, clusterId: '', controllerId: 1, brokers: [], topics });
  expect(await told({ metadata }, 'metadata', { topics: 'all' })).toEqual([
    ['topic', 't0', 'Describe', undefined],
    ['topic', 't1', 'Describe', 'TOPIC_AUTHORIZATION_FAILED'],
  ]);
});

test('a refused group is told, whether the call is answered or rejects', async () => {
  const heartbeat = async () => ({ throttleMs: 0 });
  expect(await told({ heartbeat }, 'heartbeat', MEMBER)).toEqual([['group', 'g', 'Read', undefined]]);
  const refused = { heartbeat: failing('GROUP_AUTHORIZATION_FAILED') };
  expect(await told(refused, 'heartbeat', MEMBER)).toEqual([['group', 'g', 'Read', 'GROUP_AUTHORIZATION_FAILED']]);
  expect(await told({ heartbeat: failing('REBALANCE_IN_PROGRESS') }, 'heartbeat', MEMBER)).toEqual([]);
});

test('a join is told when it is accepted, or refused for as long as the group or the session is as it is', async () => {
  const accepted = { joinGroup: async () => JOINED };
  expect(await told(accepted, 'joinGroup', JOIN)).toEqual([
    ['group', 'g', 'Read', undefined],
    ['g', undefined],
  ]);
  const named = { joinGroup: async () => ({ ...JOINED, errorCode: 'MEMBER_ID_REQUIRED' }) };
  expect(await told(named, 'joinGroup', JOIN)).toEqual([]);
  const refused = { joinGroup: failing('INVALID_SESSION_TIMEOUT') };
  expect(await told(refused, 'joinGroup', JOIN)).toEqual([['g', 'INVALID_SESSION_TIMEOUT']]);
});

test('a session that the broker ends is told as a failed login, whatever the call', async () => {
  const listOffsets = failing('LOGIN_REFUSED');
  const request = { isolation: 'read_committed', partitions: [] } as const;
  expect(await told({ listOffsets }, 'listOffsets', request)).toEqual([['broker', 'LOGIN_REFUSED']]);
});
