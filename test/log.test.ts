import { describe, expect, test } from 'vitest';
import { createLogger, etcdFaultLog, kafkaLogCreator, type Log } from '../src/log.ts';

type Line = Record<string, unknown> & { readonly level: number; readonly msg: string };

const LEVELS = { 20: 'debug', 30: 'info', 40: 'warn', 50: 'error' } as Record<number, string>;

function recorder(level = 'debug'): { log: Log; lines: () => Line[] } {
  const texts: string[] = [];
  const log = createLogger({ level, destination: { write: (text: string) => void texts.push(text) } });
  return { log, lines: () => texts.map((text) => JSON.parse(text) as Line) };
}

/** As kafkajs calls it: 1 error, 2 warn, 4 info, 5 debug. */
function kafkajs(log: Log, nowMs: () => number = () => 0) {
  const write = kafkaLogCreator(log, nowMs)(4);
  return (namespace: string, level: 1 | 2 | 4 | 5, message: unknown, extra: Record<string, unknown> = {}) =>
    write({
      namespace,
      level,
      label: 'X',
      log: { timestamp: '', logger: 'kafkajs', message: message as string, ...extra },
    });
}

describe('the log of kafkajs', () => {
  test.each([
    ['Connection', 1, 'Response AddPartitionsToTxn(key: 24, version: 1)', 'another concurrent operation', 'debug'],
    ['Connection', 1, 'Response Heartbeat(key: 12, version: 3)', 'The group is rebalancing, so rejoin', 'debug'],
    ['Connection', 1, 'Response Metadata(key: 3, version: 6)', 'This server does not host this topic', 'debug'],
    ['Connection', 1, 'Response Produce(key: 0, version: 7)', 'Topic authorization failed', 'warn'],
    ['Connection', 1, 'Connection error: connect ECONNREFUSED', '', 'warn'],
    ['Connection', 1, 'SASL PLAIN authentication failed: Authentication failed', '', 'error'],
    ['BrokerPool', 1, 'Failed to connect to seed broker, trying another broker from the list', '', 'warn'],
    ['Producer', 1, 'Failed to send messages: This server is not the leader', '', 'warn'],
    ['Runner', 2, 'The group is rebalancing, re-joining', 'x', 'info'],
    ['Runner', 1, 'The coordinator is not aware of this member, re-joining the group', '', 'warn'],
    ['Runner', 1, 'Error when calling eachBatch', 'x', 'error'],
    ['Consumer', 1, 'Crash: KafkaJSNumberOfRetriesExceeded: The coordinator is loading', '', 'warn'],
    ['Consumer', 1, 'Crash: KafkaJSConnectionError: Connection error: write after end', '', 'warn'],
    [
      'Consumer',
      1,
      'Crash: KafkaJSProtocolError: Not authorized to access group: Group authorization failed',
      '',
      'error',
    ],
    ['Consumer', 1, 'Crash: KafkaJSSASLAuthenticationError: SASL PLAIN authentication failed', '', 'error'],
    ['Consumer', 1, 'Restarting the consumer in 5ms', '', 'warn'],
    ['Consumer', 1, 'Caught error when disconnecting the consumer: x', '', 'warn'],
    ['Consumer', 1, 'Failed to execute listener: x', '', 'error'],
    ['Consumer', 4, 'Starting', '', 'debug'],
    ['ConsumerGroup', 4, 'Consumer has joined the group', '', 'info'],
    ['ConsumerGroup', 4, 'Pausing fetching from 12 topics', '', 'debug'],
    ['ConsumerGroup', 1, 'Offset out of range, resetting to default offset', '', 'error'],
    ['Connection', 5, 'Response Fetch(key: 1, version: 11)', '', 'debug'],
  ] as const)('tells %s at %i "%s" (%s) as %s', (namespace, level, message, error, expected) => {
    const { log, lines } = recorder();
    kafkajs(log)(namespace, level, message, { error });
    expect(lines().map((line) => [LEVELS[line.level], line.msg])).toEqual([[expected, message]]);
  });

  test('a warning that comes again within 10 s goes to debug, and is one again after that', () => {
    const { log, lines } = recorder();
    let now = 0;
    const write = kafkajs(log, () => now);
    for (now of [0, 9_999, 10_000]) write('Connection', 1, 'Connection error: x');
    write('Connection', 1, 'Connection error: y');
    expect(lines().map((line) => LEVELS[line.level])).toEqual(['warn', 'debug', 'warn', 'warn']);
  });

  test('an error is never held back', () => {
    const { log, lines } = recorder();
    const write = kafkajs(log);
    for (let i = 0; i < 3; i++) write('Runner', 1, 'Error when calling eachBatch');
    expect(lines().map((line) => LEVELS[line.level])).toEqual(['error', 'error', 'error']);
  });

  test('an Error in place of the message is told by its text', () => {
    const { log, lines } = recorder();
    kafkajs(log)('BrokerPool', 1, new Error('unknown broker'));
    expect(lines()[0]?.msg).toBe('unknown broker');
  });
});

describe('the log of etcd', () => {
  test('a failed endpoint is a warning once in 10 s, each endpoint by itself', () => {
    const { log, lines } = recorder('warn');
    let now = 0;
    const fault = etcdFaultLog(log, () => now);
    fault('a read', 'http://a', new Error('away'));
    fault('a read', 'http://a', new Error('away'));
    fault('a read', 'http://b', new Error('away'));
    now = 10_000;
    fault('a read', 'http://a', new Error('away'));
    expect(lines().map(({ endpoint, error }) => [endpoint, error])).toEqual([
      ['http://a', 'away'],
      ['http://b', 'away'],
      ['http://a', 'away'],
    ]);
  });
});

describe('secrets', () => {
  test('do not get out with a configuration that is logged', () => {
    const { log, lines } = recorder();
    const kafka = { brokers: ['a:1'], sasl: { mechanism: 'plain', username: 'u', password: 's3cret' } };
    const etcd = { auth: { username: 'u', password: 's3cret' } };
    log.info({ config: { kafka, etcd }, kafka, password: 's3cret' }, 'started');
    log.info(kafka, 'started');
    log.info({ env: { ETCD_PASSWORD: 's3cret', KAFKA_SASL_PASSWORD: 's3cret' } }, 'started');
    expect(lines()).toHaveLength(3);
    expect(JSON.stringify(lines())).not.toContain('s3cret');
    expect(JSON.stringify(lines())).toContain('a:1');
  });
});
