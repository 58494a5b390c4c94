import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  ERROR_CODES,
  type ErrorMeaning,
  isLinkError,
  isUnusableTopic,
  type KnownErrorCode,
  meaningOf,
} from '../../../src/kafka/wire/error-codes.ts';
import { errorCodes } from '../../../src/kafka/wire/kafkajs-modules.ts';

const SOURCE = join(import.meta.dirname, '../../../src');
const LINKS = ['UNREACHABLE', 'CONNECTION_LOST', 'NO_RESPONSE', 'LOGIN_REFUSED', 'CLOSED', 'MALFORMED_RESPONSE'];
/** Codes that no broker sends. */
const OURS = [...LINKS, 'PARTITIONS_MISSING', 'FOREIGN_MEMBER', 'SINK_FAILED', 'UNEXPECTED'];
const MOVED = [
  ...['NOT_LEADER_FOR_PARTITION', 'LEADER_NOT_AVAILABLE', 'UNKNOWN_TOPIC_OR_PARTITION', 'REPLICA_NOT_AVAILABLE'],
  ...['FENCED_LEADER_EPOCH', 'UNKNOWN_LEADER_EPOCH', 'KAFKA_STORAGE_ERROR', 'NETWORK_EXCEPTION'],
];
const COORDINATION = ['GROUP_LOAD_IN_PROGRESS', 'GROUP_COORDINATOR_NOT_AVAILABLE', 'NOT_COORDINATOR_FOR_GROUP'];

const known = Object.keys(ERROR_CODES) as KnownErrorCode[];
const kafkas = new Map(errorCodes.map(({ type, ...more }) => [type, more as { readonly retriable?: boolean }]));
const those = (has: (meaning: ErrorMeaning) => unknown) => known.filter((code) => has(meaningOf(code))).sort();

describe('the table of error codes', () => {
  it('has every code of Kafka that the source names, and no other', () => {
    const files = globSync('**/*.ts', { cwd: SOURCE }).filter((file) => !file.endsWith('error-codes.ts'));
    const texts = files.map((file) => readFileSync(join(SOURCE, file), 'utf8'));
    const named = new Set(
      texts.flatMap((text) => [...text.matchAll(/'([A-Z]+(?:_[A-Z]+)+)'/g)].map(([, name]) => name)),
    );
    const ofKafka = [...kafkas.keys()].filter((code) => named.has(code));
    expect(ofKafka.filter((code) => !Object.hasOwn(ERROR_CODES, code))).toEqual([]);
    expect(known.filter((code) => !kafkas.has(code)).sort()).toEqual(OURS.sort());
  });

  it.each<[string, (meaning: ErrorMeaning) => unknown, readonly string[]]>([
    ['no usable response', ({ isLink }) => isLink, LINKS],
    ['another leader', ({ leaderMoved }) => leaderMoved, MOVED],
    ['another coordinator', ({ coordinatorMoved }) => coordinatorMoved, COORDINATION],
    [
      'a topic that does not exist',
      ({ isAbsent }) => isAbsent,
      ['UNKNOWN_TOPIC_OR_PARTITION', 'INVALID_TOPIC_EXCEPTION'],
    ],
    [
      'a topic that can take no records for now',
      ({ isWeak }) => isWeak,
      ['LEADER_NOT_AVAILABLE', 'NOT_ENOUGH_REPLICAS', 'NOT_ENOUGH_REPLICAS_AFTER_APPEND', 'PARTITIONS_MISSING'],
    ],
    [
      'a write that is over',
      ({ writeIsOver }) => writeIsOver,
      [
        ...['UNREACHABLE', 'LEADER_NOT_AVAILABLE', 'NOT_ENOUGH_REPLICAS', 'NOT_LEADER_FOR_PARTITION'],
        ...['PARTITIONS_MISSING', 'UNKNOWN_TOPIC_OR_PARTITION'],
      ],
    ],
    ['a member that joins again', ({ member }) => member === 'rejoins', ['REBALANCE_IN_PROGRESS']],
    ['a member that was removed', ({ member }) => member === 'expelled', ['UNKNOWN_MEMBER_ID', 'ILLEGAL_GENERATION']],
    ['a member whose place is taken', ({ member }) => member === 'fenced', ['FENCED_INSTANCE_ID']],
    [
      'a record that is refused',
      ({ refuses }) => refuses === 'record',
      ['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE', 'INVALID_RECORD', 'INVALID_TIMESTAMP'],
    ],
    [
      'a group that refuses a member',
      ({ refuses }) => refuses === 'group',
      [
        ...['GROUP_AUTHORIZATION_FAILED', 'GROUP_MAX_SIZE_REACHED', 'INVALID_GROUP_ID', 'INVALID_SESSION_TIMEOUT'],
        ...['INCONSISTENT_GROUP_PROTOCOL', 'FOREIGN_MEMBER'],
      ],
    ],
    [
      'a login that is refused',
      ({ refuses }) => refuses === 'login',
      ['LOGIN_REFUSED', 'SASL_AUTHENTICATION_FAILED', 'UNSUPPORTED_SASL_MECHANISM', 'ILLEGAL_SASL_STATE'],
    ],
    [
      'a right that is missing',
      ({ isDenied }) => isDenied,
      ['TOPIC_AUTHORIZATION_FAILED', 'GROUP_AUTHORIZATION_FAILED', 'CLUSTER_AUTHORIZATION_FAILED'],
    ],
  ])('says which codes mean %s', (_, has, codes) => {
    expect(those(has)).toEqual([...codes].sort());
  });

  it('calls transient whatever has moved or is weak, and nothing that is refused', () => {
    const passing = those(({ leaderMoved, coordinatorMoved, isWeak }) => leaderMoved ?? coordinatorMoved ?? isWeak);
    expect(passing.filter((code) => meaningOf(code).isTransient !== true)).toEqual([]);
    expect(those(({ isTransient, refuses, member }) => isTransient && (refuses ?? member))).toEqual([]);
  });

  it('calls transient what Kafka calls retriable, and one code more: a broker that is away comes back', () => {
    const others = known
      .filter((code) => kafkas.has(code))
      .filter((code) => {
        return kafkas.get(code)?.retriable !== (meaningOf(code).isTransient === true);
      });
    expect(others).toEqual(['BROKER_NOT_AVAILABLE']);
  });

  it.each(['ERROR_119', 'toString', '', undefined])('gives %j no meaning', (code) => {
    expect([meaningOf(code), isLinkError(code), isUnusableTopic(code)]).toEqual([{}, false, false]);
  });
});
