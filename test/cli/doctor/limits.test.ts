import { describe, expect, test } from 'vitest';
import { judgeCertificate } from '../../../src/cli/doctor/checks.ts';
import { judgeCompaction, judgeEtcd, judgeEtcdSize } from '../../../src/cli/doctor/etcd.ts';
import { judgeBroker } from '../../../src/cli/doctor/kafka.ts';
import { judgeChrony, judgeChronyConf, judgeClock, judgeDisk, judgeLimits } from '../../../src/cli/doctor/machine.ts';

const MIB = 2 ** 20;
const GIB = 2 ** 30;
const DAY_MS = 86_400_000;
const MEMBER = { version: '3.6.1', isLeader: false, hasLeader: true, dbBytes: 3 * MIB, alarms: [], latencyMs: 3 };
const NO_REVISION_KEPT = { first: false, many: false };

const openFiles = (soft: number | string) =>
  judgeLimits(`Max open files            ${soft}                 8192    files\n`);
const chrony = (stratum: number) =>
  judgeChrony(`7F7F0101,,${stratum},1780416300.0,0.0123,0.0,0.0,0.0,0.0,0.0,0.0,0.0,16.0,Normal`);

describe('doctor judges up to its limits, and not beyond', () => {
  test.each([
    ['the latency of a broker', judgeBroker('b:1', 18, 500), judgeBroker('b:1', 18, 501), 'warn'],
    ['the oldest release of Kafka', judgeBroker('b:1', 11, 3), judgeBroker('b:1', 10, 3), 'fault'],
    [
      'the share of the quota of etcd',
      judgeEtcd('e', { ...MEMBER, dbBytes: 0.75 * GIB }, GIB),
      judgeEtcd('e', { ...MEMBER, dbBytes: 0.75 * GIB + 1 }, GIB),
      'warn',
    ],
    [
      'the latency of etcd',
      judgeEtcd('e', { ...MEMBER, latencyMs: 1_000 }, GIB),
      judgeEtcd('e', { ...MEMBER, latencyMs: 1_001 }, GIB),
      'warn',
    ],
    ['the size of etcd', judgeEtcdSize(3), judgeEtcdSize(2), 'warn'],
    [
      'revisions that are few',
      judgeCompaction(10_000n, { ...NO_REVISION_KEPT, first: true }),
      judgeCompaction(10_001n, { ...NO_REVISION_KEPT, first: true }),
      'warn',
    ],
    ['a clock that is behind', judgeClock('e', 2_000, 990, 1_000), judgeClock('e', 2_001, 990, 1_000), 'fault'],
    ['a clock that is ahead', judgeClock('e', 1_001, 3_000, 3_010), judgeClock('e', 1_000, 3_000, 3_010), 'fault'],
    ['a stratum', chrony(1), chrony(0), 'fault'],
    ['open files', openFiles(4_096), openFiles(4_095), 'warn'],
    ['a disk that is small', judgeDisk('/i', true, GIB), judgeDisk('/i', true, GIB - 1), 'warn'],
  ] as const)('%s', (_, within, beyond, state) => {
    expect([within?.state, beyond?.state]).toEqual(['ok', state]);
  });

  test('a disk is full below 100 MiB', () => {
    expect([judgeDisk('/i', true, 100 * MIB).state, judgeDisk('/i', true, 100 * MIB - 1).state]).toEqual([
      'warn',
      'fault',
    ]);
  });

  test('chrony may step at its first three updates, and no more', () => {
    const states = [0, 1, 3, 4, -1].map((limit) => judgeChronyConf(`makestep 1 ${limit}\n`)?.state);
    expect(states).toEqual([undefined, undefined, undefined, 'warn', 'warn']);
  });
});

describe('the details of doctor', () => {
  test.each([
    [18, '4.1 or later'],
    [17, '3.9 or 4.0'],
    [16, '3.7 or 3.8'],
    [15, '3.5 or 3.6'],
    [14, '3.1 to 3.4'],
    [13, '3.1 to 3.4'],
    [12, '2.7 to 3.0'],
    [11, '2.3 to 2.6'],
    [10, 'older than 2.3'],
  ])('name the release of Kafka by its version %i of fetch', (version, release) => {
    expect(judgeBroker('b:1', version, 3).detail).toBe(`Kafka ${release}, 3 ms`);
  });

  test('have the role, the size and the share of a member of etcd', () => {
    expect(judgeEtcd('e', MEMBER, GIB).detail).toBe('etcd 3.6.1, follower, 3 MiB, 3 ms');
    expect(judgeEtcd('e', { ...MEMBER, isLeader: true, dbBytes: 0.8 * GIB }, GIB).detail).toBe(
      'etcd 3.6.1, leader, 819 MiB, 3 ms, 80 % of ETCD_QUOTA_BYTES',
    );
  });

  test('say by how much a clock is surely off, or may be at most', () => {
    expect(judgeClock('e', 5_000, 990, 1_000).detail).toBe('this machine is at least 4.0 s behind');
    expect(judgeClock('e', 1_000, 5_000, 5_010).detail).toBe('this machine is at least 3.0 s ahead');
    expect(judgeClock('e', 1_000, 1_500, 1_510).detail).toBe('within 510 ms');
    expect(judgeClock('e', 2_000, 1_990, 2_020).detail).toBe('within 1.0 s');
  });

  test('have what chrony, the limits and the disk say', () => {
    expect(chrony(2)?.detail).toBe('chrony: Normal, stratum 2, off by 12.300 ms');
    expect(openFiles('unlimited')).toMatchObject({ state: 'ok', detail: 'unlimited open files' });
    expect(judgeDisk('/i', true, 5.5 * GIB).detail).toBe('/i, 5.5 GiB free');
  });

  test('count the days of a certificate, from a whole one on', () => {
    expect(judgeCertificate('C', DAY_MS - 1, 0).detail).toMatch(/in less than a day$/);
    expect(judgeCertificate('C', DAY_MS, 0).detail).toMatch(/in 1 day$/);
    expect(judgeCertificate('C', 2 * DAY_MS, 0).detail).toMatch(/in 2 days$/);
  });
});
