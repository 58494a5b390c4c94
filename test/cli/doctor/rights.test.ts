import { expect, test } from 'vitest';
import { type Right, rightsOf } from '../../../src/adapters/kafka/topics/rights.ts';
import { judgeRights } from '../../../src/cli/doctor/kafka.ts';
import { loadKafkaConfig } from '../../../src/config/config.ts';
import type { AclOperation, AuthorizedOperationsResponse } from '../../../src/kafka/wire/topic-apis.ts';

const CONFIG = loadKafkaConfig({ KAFKA_BROKERS: 'k:1' });
const RIGHTS = rightsOf('worker', CONFIG);
const PREFIX = CONFIG.topics.replyPrefix;

type Found = AuthorizedOperationsResponse['topics'][number];

/** What the brokers report for the topics of a worker with exactly these rights, and for one reply topic. */
function reported(rights: readonly Right[], change: (found: Found) => Found = (found) => found): Found[] {
  const topics = rights.filter(({ resource }) => resource === 'topic');
  return topics.map(({ name, pattern, operations }) =>
    change({ name: pattern === 'prefixed' ? `${name}cli` : name, operations: new Set(operations) }),
  );
}

const without =
  (name: string, operation: AclOperation) =>
  (found: Found): Found =>
    found.name === name ? { ...found, operations: found.operations.difference(new Set([operation])) } : found;

test('a worker with its least rights passes', () => {
  expect(judgeRights(RIGHTS, reported(RIGHTS), PREFIX)).toMatchObject({ state: 'ok' });
});

test.each([
  ['id.ledger', 'Write'],
  ['id.requests', 'Read'],
  ['id.requests', 'DescribeConfigs'],
  ['id.replies.cli', 'Write'],
] as const)('without a right on %s (%s) the fault names it', (name, operation) => {
  const check = judgeRights(RIGHTS, reported(RIGHTS, without(name, operation)), PREFIX);
  expect(check).toMatchObject({ state: 'fault', detail: `missing: ${operation} on '${name}'` });
});

test('a user without Write on any topic gets a warning, not missing rights', () => {
  const reader = reported(rightsOf('operator', CONFIG));
  expect(judgeRights(RIGHTS, reader, PREFIX)).toMatchObject({
    state: 'warn',
    detail: expect.stringContaining("can't be known"),
  });
});

test('without a reply topic the check of the right to write replies is a warning', () => {
  const found = reported(RIGHTS).map((topic) =>
    topic.name.startsWith(PREFIX) ? { ...topic, errorCode: 'UNKNOWN_TOPIC_OR_PARTITION' } : topic,
  );
  expect(judgeRights(RIGHTS, found, PREFIX)).toMatchObject({
    state: 'warn',
    detail: expect.stringContaining("can't be checked"),
  });
});

test('a long list of topics without the right is cut', () => {
  const many = Array.from({ length: 500 }, (_, at) => ({
    name: `${PREFIX}${at}`,
    operations: new Set<AclOperation>(),
  }));
  const { detail } = judgeRights(RIGHTS, [...reported(RIGHTS), ...many], PREFIX);
  expect(detail).toContain('and 490 more');
});
