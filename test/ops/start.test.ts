import { expect, test } from 'vitest';
import { parseRecord } from '../../ops/dev/child.ts';
import { isAlarming, readableLine } from '../../ops/dev/log-line.ts';
import { parsePorts } from '../../ops/dev/ports.ts';
import { parseReply, presentReply } from '../../ops/dev/reply.ts';
import { workerEnv } from '../../ops/dev/serve.ts';
import { loadKafkaConfig } from '../../src/config/config.ts';

const BREAKDOWN = { timestamp_ms: 1780416300000, datacenter_id: 4, worker_id: 18, sequence_number: 0 };
const REPLY = {
  correlation_id: 'order-1',
  count: 1,
  ids: [{ value_string: '55325805773398016', value_hex: '00c48e86f8092000', breakdown: BREAKDOWN }],
  datacenter_id: 4,
  worker_id: 18,
  fence: '7',
  replayed: false,
};

const BASE = { env: {}, brokers: 'b:1', endpoints: 'http://e:1', stateDir: '/s', slot: 2, brokerCount: 1 };

test('parseReply takes the reply from the last line of the output, unchanged', () => {
  const line = JSON.stringify(REPLY);
  expect(parseReply(`a banner\n${line}\n`)).toEqual({ line, reply: REPLY });
});

test('parseReply rejects output without a reply, and quotes it', () => {
  for (const output of ['', 'oops', '{}', '{"ids":[]}', 'null', '{"correlation_id":"x","error":{"code":"CONFLICT"}}']) {
    expect(() => parseReply(output)).toThrow(output === '' ? '(nothing)' : output);
  }
});

test('presentReply shows each ID with its time', () => {
  const text = presentReply(REPLY);
  expect(text).toContain('55325805773398016  00c48e86f8092000  2026-06-02T16:05:00.000Z  0');
  expect(text).not.toContain('replay');
  expect(presentReply({ ...REPLY, replayed: true })).toContain('a replay');
});

test('workerEnv allows a weak ledger on a cluster of one broker only', () => {
  expect(workerEnv(BASE)).toMatchObject({ ALLOW_WEAK_LEDGER: '1', TOPIC_REPLICATION_FACTOR: '1' });
  const three = workerEnv({ ...BASE, brokerCount: 3 });
  expect(three).not.toHaveProperty('ALLOW_WEAK_LEDGER');
  expect(three).not.toHaveProperty('TOPIC_REPLICATION_FACTOR');
});

test("workerEnv keeps the user's variables, treats empty ones as unset, and sets the servers that run", () => {
  const env = { DATACENTER_ID: '3', INDEX_DIR: '', ALLOW_WEAK_LEDGER: '0', KAFKA_BROKERS: '', OTHER: 'x' };
  expect(workerEnv({ ...BASE, env })).toMatchObject({
    DATACENTER_ID: '3',
    INDEX_DIR: '/s/index-2',
    ALLOW_WEAK_LEDGER: '0',
    KAFKA_BROKERS: 'b:1',
    ETCD_ENDPOINTS: 'http://e:1',
    OTHER: 'x',
  });
});

test('workerEnv turns on numbers over HTTP, with a reply topic under the prefix that the user has set', () => {
  const repliesOf = (env: NodeJS.ProcessEnv) => loadKafkaConfig(workerEnv({ ...BASE, env })).topics.apiReplies;
  expect(repliesOf({})).toBe('id.replies.http');
  expect(repliesOf({ REPLY_TOPIC_PREFIX: 'ours.' })).toBe('ours.http');
  expect(repliesOf({ API_REPLY_TOPIC: 'id.replies.numbers' })).toBe('id.replies.numbers');
});

test('workerEnv gives each worker of each cluster a separate index directory', () => {
  const dirs = ['', 'a:1', 'b:1'].flatMap((brokers) =>
    [0, 1].map((slot) => workerEnv({ ...BASE, slot, env: { KAFKA_BROKERS: brokers } }).INDEX_DIR),
  );
  expect(new Set(dirs).size).toBe(6);
});

test('isAlarming selects warnings since the start and lines that are not log lines, and no others', () => {
  const line = (level: string, time: number) => JSON.stringify({ level, time, msg: 'x' });
  expect(isAlarming(line('warn', 1000), 1000)).toBe(true);
  expect(isAlarming(line('warn', 999), 1000)).toBe(false);
  expect(isAlarming(line('info', 1000), 1000)).toBe(false);
  expect(isAlarming('Segmentation fault', 1000)).toBe(true);
  expect(isAlarming('{}', 1000)).toBe(true);
});

test('stored ports and processes are used only if they are valid', () => {
  expect(parsePorts('[1,65535]')).toEqual([1, 65_535]);
  for (const text of ['', '{}', '[0]', '[65536]', '[1.5]', '["1"]', '[1']) expect(parsePorts(text)).toBeUndefined();
  expect(parseRecord('{"pid":7,"start":"x"}')).toEqual({ pid: 7, start: 'x' });
  for (const text of ['', '{}', '{"pid":"7","start":"x"}', '{"pid":7}']) expect(parseRecord(text)).toBeUndefined();
});

test('readableLine shows a warning as a sentence, without the fields of the process', () => {
  const fields = {
    time: 1000,
    pid: 7,
    hostname: 'h',
    reason: 'LEASE_SUSPENDED',
    partitions: [1, 2],
    msg: 'gate closed',
  };
  const line = JSON.stringify({ level: 'warn', ...fields });
  expect(readableLine(line, 1000)).toBe('warning: gate closed, reason: LEASE_SUSPENDED, partitions: [1,2]');
  expect(readableLine(line, 1001)).toBeUndefined();
});

test('readableLine shows that the gate is open, and no other info lines', () => {
  const line = (msg: string) => JSON.stringify({ level: 'info', time: 1000, msg });
  expect(readableLine(line('gate open'), 1000)).toBe('gate open');
  expect(readableLine(line('joined the request group'), 1000)).toBeUndefined();
  expect(readableLine('Segmentation fault', 1000)).toBe('Segmentation fault');
});
