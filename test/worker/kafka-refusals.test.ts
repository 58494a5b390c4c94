import { beforeEach, describe, expect, test } from 'vitest';
import { KafkaError } from '../../src/kafka/wire/kafka-error.ts';
import { createLogger, withoutRepeats } from '../../src/log.ts';
import { KafkaRefusals } from '../../src/worker/kafka-refusals.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

const topics = {
  requests: 'id.requests',
  ledger: 'id.ledger',
  witness: 'id.witness',
  deadLetters: 'id.requests.dlt',
  replyPrefix: 'id.replies.',
};
const kafka = {
  brokers: ['kafka:9092'],
  clientId: 'idalloc',
  tls: true,
  sasl: { mechanism: 'plain', username: 'id-worker', password: () => 'secret' },
} as const;
const BROKER = { host: 'kafka', port: 9092 };
const ERROR_LEVEL = 'error';

let runtime: VirtualRuntime;
let lines: { level: string; msg: string; resource?: string }[];
let refusals: KafkaRefusals;

beforeEach(() => {
  runtime = new VirtualRuntime();
  lines = [];
  const write = (text: string) => void lines.push(JSON.parse(text));
  refusals = new KafkaRefusals({
    kafka,
    topics,
    groupId: 'workers',
    runtime,
    lines: withoutRepeats(createLogger({ level: 'info', destination: { write } }), runtime),
  });
});

const pass = (ms: number) => runtime.until(runtime.sleep(ms));
const DENIED = 'TOPIC_AUTHORIZATION_FAILED';

function right(name: string, operation: 'Read' | 'Write' | 'Describe', errorCode?: string): void {
  refusals.onRight({ on: 'topic', name, operation }, errorCode);
}

describe('a right that the brokers refuse', () => {
  test('is reported, with the topic and the remedy, until a broker accepts a call that needs it', () => {
    right('id.ledger', 'Write', DENIED);
    expect(refusals.resources).toEqual(new Set(['ledger']));
    expect(refusals.detail).toBe(
      "the brokers refuse Write on topic 'id.ledger': allow Read, Write and DescribeConfigs to 'id-worker'",
    );
    right('id.ledger', 'Read');
    expect(refusals.resources.size).toBe(1);
    right('id.ledger', 'Write');
    expect([refusals.resources.size, refusals.detail]).toEqual([0, undefined]);
  });

  test('on the group names the group', () => {
    refusals.onRight({ on: 'group', name: 'workers', operation: 'Read' }, 'GROUP_AUTHORIZATION_FAILED');
    expect(refusals.detail).toBe("the brokers refuse Read on group 'workers': allow Read to 'id-worker'");
  });

  test.for([
    ['id.requests.dlt', 'Write and DescribeConfigs'],
    ['id.requests.reply', 'Write'],
  ] as const)('on %s names all rights that the list has for it', async ([topic, needed]) => {
    right(topic, 'Write');
    await pass(1);
    right(topic, 'Write', DENIED);
    expect(refusals.detail).toContain(`allow ${needed} to`);
  });

  test("of its session names the variable and the brokers' limits, until a broker accepts it", () => {
    const member = { groupId: 'workers', sessionTimeoutMs: 1_000 };
    refusals.onJoin(member, 'INVALID_SESSION_TIMEOUT');
    expect(refusals.resources).toEqual(new Set(['group']));
    expect(refusals.detail).toBe(
      "the brokers refuse a session of 1000 ms in group 'workers': set KAFKA_SESSION_TIMEOUT_MS within their group.min.session.timeout.ms (6000 by default) to group.max.session.timeout.ms",
    );
    refusals.onRight({ on: 'group', name: 'workers', operation: 'Read' }, undefined);
    expect(refusals.resources.size).toBe(1);
    refusals.onJoin(member, undefined);
    expect([refusals.resources.size, refusals.detail]).toEqual([0, undefined]);
  });

  test('of its place in a group with a foreign consumer says to stop that, or to use another group', () => {
    const member = { groupId: 'workers', sessionTimeoutMs: 10_000 };
    refusals.onJoin(member, 'INCONSISTENT_GROUP_PROTOCOL');
    expect(refusals.resources).toEqual(new Set(['group']));
    expect(refusals.detail).toBe(
      "the brokers refuse this worker in group 'workers', which has a consumer that is not a worker: stop that consumer, or set KAFKA_GROUP_ID to a group of the workers' own",
    );
    refusals.onJoin(member, undefined);
    expect(refusals.detail).toBeUndefined();
  });

  test('of its place in a group that a foreign consumer has converted names that consumer while it is there', () => {
    const member = { groupId: 'workers', sessionTimeoutMs: 10_000 };
    refusals.onJoin(member, 'FOREIGN_MEMBER');
    refusals.foreignMembers(["'rdkafka' at 192.0.2.7", "'spring' at 192.0.2.8"]);
    expect(refusals.detail).toMatch(
      /not a worker: stop .*; not a worker: 'rdkafka' at 192\.0\.2\.7, 'spring' at 192\.0\.2\.8$/,
    );
    refusals.onJoin(member, undefined);
    refusals.onJoin(member, 'FOREIGN_MEMBER');
    expect(refusals.detail).toMatch(/a group of the workers' own$/);
  });

  test('is forgotten when no call has needed it for half a minute', async () => {
    right('id.ledger', 'Write', DENIED);
    await pass(30_000);
    expect(refusals.resources.size).toBe(1);
    await pass(1);
    expect(refusals.resources.size).toBe(0);
  });

  test('is one error line a minute, and one when it ends', async () => {
    for (let s = 0; s < 90; s += 1) {
      right('id.requests', 'Read', DENIED);
      right('id.requests', 'Describe', DENIED);
      await pass(1_000);
    }
    right('id.requests', 'Read');
    right('id.requests', 'Describe');
    expect(lines.map(({ level, msg }) => [level, msg])).toEqual([
      [ERROR_LEVEL, 'the brokers refuse this worker'],
      [ERROR_LEVEL, 'the brokers refuse this worker'],
      ['info', 'the brokers accept this worker again'],
    ]);
  });

  test('for a moment is not logged', async () => {
    right('id.requests', 'Read', DENIED);
    await pass(900);
    right('id.requests', 'Read', DENIED);
    right('id.requests', 'Read');
    expect(lines).toEqual([]);
  });
});

describe('a reply topic that refuses replies', () => {
  test('is not reported if it never accepted a reply: that concerns only its requesters', () => {
    right('id.replies.a', 'Write', DENIED);
    expect(refusals.resources).toEqual(new Set(['replies']));
    expect([refusals.detail, refusals.isRevoked('id.replies.a')]).toEqual([undefined, false]);
  });

  test('is reported as a missing right if it accepted replies before, and no reply topic has accepted one since', async () => {
    right('id.replies.a', 'Write');
    await pass(1);
    right('id.replies.a', 'Describe', DENIED);
    expect(refusals.isRevoked('id.replies.a')).toBe(true);
    expect(refusals.detail).toMatch(/'id\.replies\.a'.*allow Write/);
  });

  test('does not delay other reply topics', async () => {
    right('id.replies.a', 'Write');
    await pass(1);
    right('id.replies.a', 'Write', DENIED);
    await pass(1);
    right('id.replies.b', 'Write');
    expect([refusals.detail, refusals.isRevoked('id.replies.a')]).toEqual([undefined, false]);
  });

  test('is not mistaken for a group or another topic whose name ends as its own', async () => {
    right('id.replies.a', 'Write');
    await pass(1);
    for (const name of ['id.replies.a', 'readers of id.replies.a'])
      refusals.onRight({ on: 'group', name, operation: 'Read' }, 'GROUP_AUTHORIZATION_FAILED');
    right('of id.replies.a', 'Write', DENIED);
    expect(refusals.isRevoked('id.replies.a')).toBe(false);
  });

  test('is not remembered beside a thousand other refusals, which requests may name', async () => {
    right('id.replies.last', 'Write');
    await pass(1);
    for (let i = 0; i < 999; i += 1) right(`id.replies.${i}`, 'Describe', DENIED);
    right('id.replies.thousandth', 'Describe', DENIED);
    right('id.replies.last', 'Write', DENIED);
    expect(refusals.isRevoked('id.replies.last')).toBe(false);
    right('id.replies.thousandth', 'Describe');
    right('id.replies.last', 'Write', DENIED);
    expect(refusals.isRevoked('id.replies.last')).toBe(true);
  });

  test('is ours as long as it is among the thousand that have last accepted a reply', async () => {
    for (let i = 0; i <= 1_000; i += 1) right(`id.replies.${i}`, 'Write');
    await pass(1);
    for (const i of [0, 1]) right(`id.replies.${i}`, 'Write', DENIED);
    expect([0, 1].map((i) => refusals.isRevoked(`id.replies.${i}`))).toEqual([false, true]);
  });
});

describe('a login', () => {
  test('that is refused names the user and the variables, until that broker accepts it', () => {
    refusals.onDialError(BROKER, new KafkaError('LOGIN_REFUSED', 'invalid credentials'));
    expect(refusals.resources).toEqual(new Set(['login']));
    expect(refusals.detail).toMatch(/'id-worker'.*invalid credentials.*KAFKA_SASL_PASSWORD/);
    refusals.onLogin({ host: 'other', port: 9092 });
    expect(refusals.resources.size).toBe(1);
    refusals.onLogin(BROKER);
    expect(refusals.resources.size).toBe(0);
  });

  test('that fails because of the certificate of a broker names the CA variable', () => {
    const cause = Object.assign(new Error('certificate has expired'), { code: 'CERT_HAS_EXPIRED' });
    refusals.onDialError(BROKER, new KafkaError('UNREACHABLE', 'certificate has expired', { cause }));
    expect(refusals.detail).toMatch(/certificate has expired.*KAFKA_CA/);
  });

  test('that fails because no broker is reachable does not count as refused', () => {
    const cause = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
    refusals.onDialError(BROKER, new KafkaError('UNREACHABLE', 'connect ECONNREFUSED', { cause }));
    expect(refusals.detail).toBeUndefined();
  });
});
