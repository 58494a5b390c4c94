import { expect, test } from 'vitest';
import { judgeCertificate, judgeVariables } from '../../../src/cli/doctor/checks.ts';
import { doctorText } from '../../../src/cli/doctor/doctor-run.ts';
import { judgeCompaction, judgeEtcd, judgeEtcdSize } from '../../../src/cli/doctor/etcd.ts';
import { judgeBroker, judgeTopicReport } from '../../../src/cli/doctor/kafka.ts';
import {
  judgeChrony,
  judgeChronyConf,
  judgeClock,
  judgeDisk,
  judgeLimits,
  judgeTimedatectl,
} from '../../../src/cli/doctor/machine.ts';

const GIB = 2 ** 30;
const DAY_MS = 86_400_000;
const MEMBER = { version: '3.6.1', isLeader: true, hasLeader: true, dbBytes: 1, alarms: [], latencyMs: 3 };
const TOPICS = { clusterId: 'c', faults: [], added: [], warnings: [], differences: [], remedies: [], hidden: [] };
const TRACKING = '7F7F0101,,10,1780416300.0,0.000012,0.0,0.0,0.0,0.0,0.0,0.0,0.0,16.0,Normal';

test.each([
  ['a current broker', judgeBroker('b:1', 18, 3), 'ok'],
  ['a slow broker', judgeBroker('b:1', 18, 900), 'warn'],
  ['an ancient broker', judgeBroker('b:1', 10, 3), 'fault'],
  ['a leader', judgeEtcd('e', MEMBER, 2 * GIB), 'ok'],
  ['a member without a leader', judgeEtcd('e', { ...MEMBER, hasLeader: false }, 2 * GIB), 'fault'],
  ['an old member', judgeEtcd('e', { ...MEMBER, version: '3.4.30' }, 2 * GIB), 'warn'],
  ['a member of 3.10', judgeEtcd('e', { ...MEMBER, version: '3.10.0' }, 2 * GIB), 'ok'],
  ['a large database', judgeEtcd('e', { ...MEMBER, dbBytes: 2 * GIB }, 2 * GIB), 'warn'],
  ['a database of that size with a larger quota', judgeEtcd('e', { ...MEMBER, dbBytes: 2 * GIB }, 8 * GIB), 'ok'],
  ['an alarm', judgeEtcd('e', { ...MEMBER, alarms: ['NOSPACE'] }, 2 * GIB), 'fault'],
  ['a slow member', judgeEtcd('e', { ...MEMBER, latencyMs: 2_000 }, 2 * GIB), 'warn'],
  ['a certificate of three months', judgeCertificate('ETCD_CERT', 90 * DAY_MS, 0), 'ok'],
  ['a certificate that expires in two weeks', judgeCertificate('ETCD_CERT', 14 * DAY_MS, 0), 'ok'],
  ['a certificate that expires within two weeks', judgeCertificate('ETCD_CERT', 14 * DAY_MS - 1, 0), 'warn'],
  ['a certificate that has just expired', judgeCertificate('ETCD_CERT', DAY_MS, DAY_MS), 'fault'],
  ['one endpoint', judgeEtcdSize(1), 'warn'],
  ['three endpoints', judgeEtcdSize(3), 'ok'],
  ['an etcd too young to compact', judgeCompaction(10_000n, { first: false, many: false }), 'ok'],
  ['an etcd that compacts', judgeCompaction(5_000_000n, { first: false, many: false }), 'ok'],
  ['an etcd that never compacted', judgeCompaction(10_001n, { first: true, many: false }), 'warn'],
  ['an etcd that compacts too seldom', judgeCompaction(5_000_000n, { first: false, many: true }), 'warn'],
  ['a clock in the same second', judgeClock('e', 1_000, 1_500, 1_510), 'ok'],
  ['a clock that may be off by a second', judgeClock('e', 2_000, 1_000, 1_010), 'ok'],
  ['a clock that is surely behind', judgeClock('e', 5_000, 1_000, 1_010), 'fault'],
  ['a clock that is surely ahead', judgeClock('e', 1_000, 5_000, 5_010), 'fault'],
  ['chrony in order', judgeChrony(TRACKING), 'ok'],
  ['chrony out of order', judgeChrony(TRACKING.replace('Normal', 'Not synchronised')), 'fault'],
  ['timedatectl in order', judgeTimedatectl('NTP=yes\nNTPSynchronized=yes\n'), 'ok'],
  ['timedatectl out of order', judgeTimedatectl('NTPSynchronized=no\n'), 'fault'],
  ['steps at any time', judgeChronyConf('driftfile x\nmakestep 1 -1\n'), 'warn'],
  [
    'few open files',
    judgeLimits('Max open files            1024                 1048576              files\n'),
    'warn',
  ],
  ['many open files', judgeLimits('Max open files            65536                65536                files\n'), 'ok'],
  ['a good disk', judgeDisk('/i', true, 5 * GIB), 'ok'],
  ['a small disk', judgeDisk('/i', true, GIB / 2), 'warn'],
  ['a full disk', judgeDisk('/i', true, 1_000), 'fault'],
  ['a disk that is not ours', judgeDisk('/i', false, 5 * GIB), 'fault'],
])('%s is judged', (_, check, state) => {
  expect(check?.state).toBe(state);
  // Every result except ok has a fix.
  expect(check?.fix === undefined).toBe(state === 'ok');
});

test('the check of a certificate names its variable and the day on which it expires', () => {
  const check = judgeCertificate('API_TLS_CERT', Date.UTC(2026, 11, 24, 18, 30), Date.UTC(2026, 11, 20));
  expect([check.name, check.detail]).toEqual([
    'certificate API_TLS_CERT',
    'expires on 2026-12-24 18:30 UTC, in 4 days',
  ]);
});

test('output without the facts of a check gives no result', () => {
  expect([judgeChrony(''), judgeChrony('506 Cannot talk to daemon'), judgeTimedatectl('')]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
  expect([judgeChronyConf('makestep 1 3\n# makestep 1 -1\n'), judgeLimits('')]).toEqual([undefined, undefined]);
});

test('the fix for a clock is to slew it, and never to step it', () => {
  expect(judgeTimedatectl('NTPSynchronized=no')?.fix).toMatch(/slewing.*never ntpd -g/);
});

test('topics are judged as a worker does at its start', () => {
  const lacking = { code: 'LEDGER_RETENTION', message: 'too short' } as const;
  expect(judgeTopicReport(TOPICS)).toMatchObject([{ state: 'ok' }]);
  expect(judgeTopicReport({ ...TOPICS, faults: [lacking], remedies: ['do this'] })).toMatchObject([
    { name: 'topics LEDGER_RETENTION', state: 'fault', fix: 'do this' },
  ]);
  expect(judgeTopicReport({ ...TOPICS, added: [{ ...lacking, code: 'TOPIC_INVALID' }] })).toMatchObject([
    { name: 'topics TOPIC_INVALID', state: 'warn' },
  ]);
  expect(judgeTopicReport({ ...TOPICS, warnings: [{ ...lacking, code: 'LEDGER_WEAK' }] })).toMatchObject([
    { state: 'warn' },
  ]);
  expect(judgeTopicReport({ ...TOPICS, differences: ['x'], remedies: ['y'] })).toMatchObject([
    { state: 'warn', fix: 'y' },
  ]);
});

test('differences from the plan are shown besides an accepted weakness', () => {
  const weak = { code: 'LEDGER_WEAK', message: 'one replica' } as const;
  const differences = ['id.ledger: compression.type is lz4, not uncompressed'];
  const report = { ...TOPICS, warnings: [weak], differences, remedies: ['kafka-configs …'] };
  expect(judgeTopicReport(report).map(({ state, detail, fix }) => [state, detail, fix])).toEqual([
    ['warn', 'one replica', 'for production: three brokers or more'],
    ['warn', differences[0], 'kafka-configs …'],
  ]);
});

test('each likely mistake in the variables is a warning', () => {
  expect(judgeVariables(['A is ignored: did you mean B?'])).toEqual([
    { name: 'variables', state: 'warn', detail: 'A is ignored: did you mean B?', fix: expect.any(String) },
  ]);
  expect(judgeVariables([])).toEqual([]);
});

test('a fix that several checks share is printed once, below the last of them', () => {
  const checks = ['first', 'second', 'third'].map((name) => ({
    name,
    state: 'fault' as const,
    detail: 'd',
    fix: 'do this',
  }));
  const terminal = { input: false, output: false, errors: false };
  const lines = doctorText({ terminal, env: {} }, [...checks, { name: 'other', state: 'ok', detail: 'd' }]).split('\n');
  expect(lines.filter((line) => line.includes('fix:'))).toHaveLength(1);
  expect(lines.findIndex((line) => line.includes('fix:'))).toBe(lines.findIndex((line) => line.includes('third')) + 1);
});

test('an alarm of etcd is named, with its remedy', () => {
  const check = judgeEtcd('e', { ...MEMBER, alarms: ['NOSPACE', 'CORRUPT'] }, 2 * GIB);
  expect(check.detail).toContain('it refuses writes: alarm NOSPACE, CORRUPT');
  expect(check.fix).toMatch(/compact and defragment it, then disarm.*replace that member/);
});
