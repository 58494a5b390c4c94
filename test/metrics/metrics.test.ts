import { describe, expect, test } from 'vitest';
import { ERRORS } from '../../src/errors.ts';
import { createMetrics, type Metrics } from '../../src/metrics/metrics.ts';
import type { Vitals } from '../../src/metrics/vitals.ts';

const IDLE: Vitals = {
  isMember: true,
  kafkaSilenceMs: 0,
  silent: [],
  copies: [],
  stoppedPartitions: 0,
  addedPartitions: new Map(),
  kafkaRefused: new Set(),
  oldestUnread: [],
  largeWaiting: [],
  certificates: [],
  configured: { reservationMs: 25_000, standbys: 1, layoutEndMs: 3_966_451_200_000 },
};

async function lines(metrics: Metrics): Promise<string[]> {
  return (await metrics.render()).body.split('\n');
}

describe('durations', () => {
  test('of steps and of calls of etcd are counted in seconds, by label', async () => {
    const metrics = createMetrics();
    metrics.observeStep('append', 7);
    metrics.observeEtcdCall('keep_alive', 4_000, false);
    expect(await lines(metrics)).toEqual(
      expect.arrayContaining([
        'idalloc_step_seconds_bucket{le="0.005",step="append"} 0',
        'idalloc_step_seconds_bucket{le="0.01",step="append"} 1',
        'idalloc_step_seconds_sum{step="append"} 0.007',
        'idalloc_etcd_call_seconds_bucket{le="2.5",call="keep_alive",outcome="failed"} 0',
        'idalloc_etcd_call_seconds_bucket{le="5",call="keep_alive",outcome="failed"} 1',
      ]),
    );
  });

  test('exist for each step from the start, so that a rate never lacks one', async () => {
    const counts = (await lines(createMetrics())).filter((line) => line.startsWith('idalloc_step_seconds_count'));
    expect(counts).toHaveLength(5);
  });
});

describe('counters', () => {
  test('of dead letters exist for each code that can become one, and count by it', async () => {
    const metrics = createMetrics();
    metrics.addDeadLetters('INVALID_COUNT', 3);
    const shown = (await lines(metrics)).filter((line) => line.startsWith('idalloc_dead_letters_total{'));
    const codes = Object.entries(ERRORS).flatMap(([code, { deadLetter }]) => (deadLetter ? [code] : []));
    expect(shown).toHaveLength(codes.length);
    expect(shown).toContain('idalloc_dead_letters_total{code="INVALID_COUNT"} 3');
  });

  test('of deferred requests rise by what is added', async () => {
    const metrics = createMetrics();
    metrics.addDeferred(0);
    metrics.addDeferred(7);
    expect(await lines(metrics)).toContain('idalloc_requests_deferred_total 7');
  });
});

test('a name ends in _total if, and only if, the metric is a counter', async () => {
  const types = (await lines(createMetrics())).filter((line) => line.startsWith('# TYPE'));
  expect(types.filter((line) => /_total \w+$/.test(line) !== / counter$/.test(line))).toEqual([]);
});

describe('the state of a worker', () => {
  test('shows the version of the package', async () => {
    expect(await lines(createMetrics({ version: '1.2.3' }))).toContain('idalloc_build_info{version="1.2.3"} 1');
  });

  test('shows how much of a ledger partition a restore has, from the start of the log', async () => {
    const restoring = { partition: 2, state: 'restoring', low: 100, end: 150, logEnd: 300 } as const;
    const complete = { partition: 3, state: 'following', low: 0, end: 300, logEnd: 300 } as const;
    const empty = { partition: 4, state: 'restoring', low: 5, end: 5, logEnd: 5 } as const;
    const metrics = createMetrics({ vitals: () => ({ ...IDLE, copies: [restoring, complete, empty] }) });
    const shown = (await lines(metrics)).filter((line) => line.startsWith('idalloc_restore_progress_ratio'));
    expect(shown).toEqual([
      'idalloc_restore_progress_ratio{partition="2"} 0.25',
      'idalloc_restore_progress_ratio{partition="4"} 1',
    ]);
  });

  test('has what is configured once it is known, and not as 0 before', async () => {
    let vitals: Vitals | undefined;
    const metrics = createMetrics({ vitals: () => vitals });
    const end = async () => (await lines(metrics)).filter((line) => /^idalloc_layout_end\S+ /.test(line));
    expect(await end()).toEqual([]);
    vitals = IDLE;
    expect(await end()).toEqual(['idalloc_layout_end_timestamp_seconds 3966451200']);
    expect(await lines(metrics)).toEqual(
      expect.arrayContaining(['idalloc_reservation_seconds 25', 'idalloc_standbys_wanted 1']),
    );
  });
});
