import { describe, expect, test } from 'vitest';
import { ERRORS } from '../../src/errors.ts';
import { createMetrics, type Metrics } from '../../src/metrics/metrics.ts';
import type { Vitals } from '../../src/metrics/vitals.ts';

const IDLE: Vitals = {
  isMember: true,
  kafkaSilenceMs: 0,
  silent: [],
  copies: [],
  headsFailingMs: 0,
  stoppedPartitions: 0,
  addedPartitions: new Map(),
  groupUnread: [],
  topicFaults: [],
  kafkaRefused: new Set(),
  oldestUnread: [],
  largeWaiting: [],
  numbersWaiting: [],
  stoppedSequences: 0,
  brokerLeads: [],
  certificates: [],
  indexDisk: undefined,
  etcd: { databases: [], alarms: new Set() },
  configured: {
    ...{ clockMarginMs: 120_000, reservationMs: 25_000, etcdQuotaBytes: 2 ** 31, poolWorkerIds: 32 },
    ...{ standbys: 1, layoutEndMs: 3_966_451_200_000 },
  },
};

async function lines(metrics: Metrics): Promise<string[]> {
  return (await metrics.render()).body.split('\n');
}

describe('durations', () => {
  test('of steps and of calls of etcd are counted in seconds, by label', async () => {
    const metrics = createMetrics();
    metrics.observeStep('append', 7);
    metrics.observeEtcdCall('keep_alive', 4_000, 'failed');
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

  test('of batches, of HTTP requests and of their waits for the ledger are counted in seconds', async () => {
    const metrics = createMetrics();
    metrics.observeBatch(250);
    metrics.addHttpRequest('/api/v1/ids', 200, 'orders', 20);
    metrics.observeHttpLedger('refused', 1_500);
    expect(await lines(metrics)).toEqual(
      expect.arrayContaining([
        'idalloc_batch_seconds_sum 0.25',
        'idalloc_http_request_seconds_sum{route="/api/v1/ids"} 0.02',
        'idalloc_http_ledger_seconds_sum{outcome="refused"} 1.5',
      ]),
    );
  });

  test('exist for each step from the start, so that a rate never lacks one', async () => {
    const counts = (await lines(createMetrics())).filter((line) => line.startsWith('idalloc_step_seconds_count'));
    expect(counts).toHaveLength(6);
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

  test('of what a worker has done rise by it, each under its own name', async () => {
    const metrics = createMetrics();
    metrics.addIds(5);
    metrics.addNumbers(3);
    metrics.addSwap('refused');
    metrics.addSequenceLoss();
    metrics.addRequests('issued');
    metrics.addRequests('replayed', 4);
    metrics.addReplies(6);
    metrics.addDeadLetters('INVALID_COUNT', 1);
    metrics.addDeadLetters('INVALID_COUNT', 2);
    metrics.addForwarded(2);
    metrics.addForeignOffset();
    metrics.addLedgerLoss();
    metrics.addIndebted();
    metrics.addQuotaExceeded('id.replies.a');
    metrics.addError('CONFLICT');
    metrics.addError('CONFLICT', 2);
    metrics.addShedConnection('api');
    metrics.addHttpRequest('/api/v1/ids', 200, 'orders', 20);
    const shown = (await lines(metrics)).filter((line) => /^idalloc_\w+_total\b.* [1-9]\d*$/.test(line));
    expect(shown.toSorted()).toEqual([
      'idalloc_connections_shed_total{listener="api"} 1',
      'idalloc_dead_letter_ranges_total 1',
      'idalloc_dead_letters_total{code="INVALID_COUNT"} 3',
      'idalloc_errors_total{code="CONFLICT"} 3',
      'idalloc_foreign_offsets_total 1',
      'idalloc_http_requests_total{route="/api/v1/ids",status="200",caller="orders"} 1',
      'idalloc_ids_total 5',
      'idalloc_ledger_losses_total 1',
      'idalloc_quota_exceeded_total{prefix="id.replies.a"} 1',
      'idalloc_replays_total 4',
      'idalloc_replies_total 6',
      'idalloc_requests_forwarded_total 2',
      'idalloc_requests_indebted_total 1',
      'idalloc_requests_total{result="issued"} 1',
      'idalloc_requests_total{result="replayed"} 4',
      'idalloc_sequence_losses_total 1',
      'idalloc_sequence_numbers_total 3',
      'idalloc_sequence_swaps_total{outcome="refused"} 1',
    ]);
  });

  test('of replies that were not sent rise by what is added, from zero for each reason', async () => {
    const metrics = createMetrics();
    metrics.addSkippedReplies('any', 7);
    expect(await lines(metrics)).toEqual(
      expect.arrayContaining([
        'idalloc_replies_skipped_total{reason="size"} 0',
        'idalloc_replies_skipped_total{reason="any"} 7',
      ]),
    );
  });
});

test('the gate is shown by its last reason alone, and its changes are counted', async () => {
  const metrics = createMetrics();
  for (const reason of ['STARTING', 'open', 'open', 'LEASE_LOST', 'open']) metrics.setGate(reason);
  const shown = (await lines(metrics)).filter((line) => /^idalloc_gate\S* /.test(line));
  expect(shown.toSorted()).toEqual([
    'idalloc_gate_changes_total{reason="LEASE_LOST"} 1',
    'idalloc_gate_changes_total{reason="STARTING"} 1',
    'idalloc_gate_changes_total{reason="open"} 2',
    'idalloc_gate{reason="LEASE_LOST"} 0',
    'idalloc_gate{reason="STARTING"} 0',
    'idalloc_gate{reason="open"} 1',
  ]);
});

test('margins and drift are shown in seconds, also below zero, and the lag in records', async () => {
  const metrics = createMetrics();
  metrics.setLeaseMargin(-500);
  metrics.setCeilingMargin(12_500);
  metrics.setClockDrift({ lowMs: -250, highMs: 750 });
  metrics.setLag(7, 40);
  expect(await lines(metrics)).toEqual(
    expect.arrayContaining([
      'idalloc_lease_margin_seconds -0.5',
      'idalloc_ceiling_margin_seconds 12.5',
      'idalloc_clock_drift_seconds{bound="low"} -0.25',
      'idalloc_clock_drift_seconds{bound="high"} 0.75',
      'idalloc_consumer_lag_records{partition="7"} 40',
    ]),
  );
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

  test('drops the lag of a partition that moved to another worker', async () => {
    const metrics = createMetrics();
    metrics.setLag(3, 41);
    metrics.setLag(3, undefined);
    expect((await metrics.render()).body).not.toContain('partition="3"');
  });

  test('drops the drift when it is unknown', async () => {
    const metrics = createMetrics();
    metrics.setClockDrift({ lowMs: 0, highMs: 1 });
    metrics.setClockDrift(undefined);
    expect((await metrics.render()).body).not.toContain('bound=');
  });

  test('is that at the time of the scrape', async () => {
    let vitals: Vitals | undefined;
    const metrics = createMetrics({ vitals: () => vitals });
    const shown = () => lines(metrics);
    expect(await shown()).toContain('idalloc_group_joined 0');
    const copies = [{ partition: 3, state: 'serving' as const, low: 0, end: 93, logEnd: 100 }];
    const kafkaRefused = new Set(['ledger'] as const);
    vitals = {
      ...IDLE,
      kafkaSilenceMs: 1_500,
      silent: [{ partition: 3, topic: 'ledger', broker: 'kafka-2:9092', milliseconds: 9_000 }],
      copies,
      headsFailingMs: 1_500,
      stoppedPartitions: 2,
      addedPartitions: new Map([['requests', 4]] as const),
      groupUnread: [{ partition: 5, milliseconds: 61_500 }],
      topicFaults: [{ code: 'LEDGER_WEAK' }, { code: 'LEDGER_RETENTION' }, { code: 'LEDGER_WEAK' }],
      kafkaRefused,
      oldestUnread: [{ partition: 3, milliseconds: 250 }],
      largeWaiting: [{ partition: 3, waiting: 12, milliseconds: 95_000 }],
      numbersWaiting: [{ partition: 4, waiting: 7, milliseconds: 2_000 }],
      stoppedSequences: 2,
      brokerLeads: [{ broker: '2', milliseconds: -1_500 }],
      etcd: { databases: [{ endpoint: 'http://etcd:2379', bytes: 4_096 }], alarms: new Set(['NOSPACE'] as const) },
      certificates: [{ variable: 'ETCD_CERT', expiresAtMs: 1_780_416_300_000, lifeMs: 7_776_000_000 }],
      indexDisk: { bytes: 1_000, freeBytes: 400 },
    };
    expect(await shown()).toEqual(
      expect.arrayContaining([
        'idalloc_group_joined 1',
        'idalloc_certificate_life_seconds{variable="ETCD_CERT"} 7776000',
        'idalloc_index_disk_free_bytes 400',
        'idalloc_index_disk_bytes 1000',
        'idalloc_pool_worker_ids 32',
        'idalloc_kafka_silence_seconds 1.5',
        'idalloc_partition_unreached_seconds{partition="3",topic="ledger",broker="kafka-2:9092"} 9',
        'idalloc_ledger_stopped_partitions 2',
        'idalloc_topic_added_partitions{topic="requests"} 4',
        'idalloc_topic_added_partitions{topic="ledger"} 0',
        'idalloc_topic_faults{code="TOPIC_INVALID"} 0',
        'idalloc_topic_faults{code="LEDGER_WEAK"} 2',
        'idalloc_topic_faults{code="LEDGER_RETENTION"} 1',
        'idalloc_partition_state{partition="3",state="serving"} 1',
        'idalloc_ledger_lag_records{partition="3"} 7',
        'idalloc_request_oldest_unread_seconds{partition="3"} 0.25',
        'idalloc_ledger_heads_failing_seconds 1.5',
        'idalloc_kafka_refused{resource="ledger"} 1',
        'idalloc_kafka_refused{resource="login"} 0',
        'idalloc_etcd_database_bytes{endpoint="http://etcd:2379"} 4096',
        'idalloc_etcd_alarm{alarm="NOSPACE"} 1',
        'idalloc_etcd_alarm{alarm="CORRUPT"} 0',
        'idalloc_broker_clock_lead_seconds{broker="2"} -1.5',
        'idalloc_number_requests_waiting{partition="4"} 7',
        'idalloc_number_request_oldest_seconds{partition="4"} 2',
        'idalloc_sequences_stopped 2',
        'idalloc_broker_clock_margin_seconds 120',
        'idalloc_etcd_quota_bytes 2147483648',
        'idalloc_group_oldest_unread_seconds{partition="5"} 61.5',
        'idalloc_large_requests_waiting{partition="3"} 12',
        'idalloc_large_request_oldest_seconds{partition="3"} 95',
        'idalloc_certificate_expiry_timestamp_seconds{variable="ETCD_CERT"} 1780416300',
      ]),
    );
    vitals = { ...vitals, silent: [], copies: [], oldestUnread: [], largeWaiting: [] };
    expect(await shown()).not.toContainEqual(expect.stringContaining('partition="3"'));
  });

  test('is read once per scrape', async () => {
    const reads = { vitals: 0, certificates: 0 };
    const vitals = (): Vitals => {
      reads.vitals += 1;
      return {
        ...IDLE,
        get certificates() {
          reads.certificates += 1;
          return [];
        },
      };
    };
    const metrics = createMetrics({ vitals });
    await metrics.render();
    expect(reads).toEqual({ vitals: 1, certificates: 1 });
    await metrics.render();
    expect(reads).toEqual({ vitals: 2, certificates: 2 });
  });

  test('of two workers stays separate', async () => {
    const one = createMetrics();
    const two = createMetrics();
    one.addIds(5);
    expect((await two.render()).body).toContain('idalloc_ids_total 0');
  });
});
