/** A case of an alert: series of one deployment, and when Prometheus must fire it. */
export interface RuleCase {
  readonly alert: string;
  /** By selector, in Prometheus' notation of test series: a value for each half minute. */
  readonly series: Readonly<Record<string, string>>;
  /** The last moment at which it must still be silent; undefined if it fires at once. */
  readonly silentAt?: string;
  readonly firesAt: string;
  /** Besides its severity. */
  readonly labels: Readonly<Record<string, string>>;
  readonly summary: string;
}

const JOB = { job: 'idalloc' };
const WORKER = { ...JOB, instance: 'a:9464' };
const PARTITION = { ...JOB, partition: '3' };
const AT = 'job="idalloc",instance="a:9464"';
const OPEN = { [`idalloc_gate{${AT},reason="open"}`]: '1x60' };
const A = 'The worker a:9464 of idalloc';

/** One for each alert, in the order of the rules. */
export const RULE_CASES: readonly RuleCase[] = [
  {
    alert: 'IdallocNoWorkerServes',
    series: {
      [`idalloc_group_joined{${AT}}`]: '1x10 0x60',
      'idalloc_group_joined{job="idalloc",instance="b:9464"}': '0x70',
    },
    silentAt: '6m',
    firesAt: '7m',
    labels: {},
    summary: 'No worker is a member of the request group, so no request is answered.',
  },
  {
    alert: 'IdallocRequestsUnanswered',
    series: { ...OPEN, [`idalloc_request_oldest_unread_seconds{${AT},partition="3"}`]: '0+30x60' },
    silentAt: '3m',
    firesAt: '4m',
    labels: PARTITION,
    summary: 'A request in partition 3 of idalloc has waited for 4m 0s.',
  },
  {
    alert: 'IdallocAnswersSlow',
    series: {
      [`idalloc_batch_seconds_bucket{${AT},le="1"}`]: '0x60',
      [`idalloc_batch_seconds_bucket{${AT},le="2.5"}`]: '0+10x60',
      [`idalloc_batch_seconds_bucket{${AT},le="+Inf"}`]: '0+10x60',
    },
    silentAt: '9m',
    firesAt: '12m',
    labels: JOB,
    summary: 'One in a hundred record batches of idalloc takes 2.485s or longer to answer.',
  },
  {
    alert: 'IdallocLargeRequestsWait',
    series: { [`idalloc_large_request_oldest_seconds{${AT},partition="3"}`]: '0+30x60' },
    silentAt: '3m',
    firesAt: '5m',
    labels: PARTITION,
    summary: 'A large request in partition 3 of idalloc has waited for 5m 0s.',
  },
  {
    alert: 'IdallocSequenceStopped',
    series: { [`idalloc_sequences_stopped{${AT}}`]: '0x10 2x60' },
    silentAt: '5m',
    firesAt: '11m',
    labels: JOB,
    summary: 'Sequences of idalloc give out no numbers, because the ledger contradicts etcd.',
  },
  {
    alert: 'IdallocNumbersLost',
    series: { [`idalloc_sequence_losses_total{${AT}}`]: '0x10 1x60' },
    silentAt: '5m',
    firesAt: '6m',
    labels: JOB,
    summary: 'The ledger of idalloc has lost numbers of sequences, which go on behind them.',
  },
  {
    alert: 'IdallocDeadLetters',
    series: { [`idalloc_dead_letters_total{${AT},code="INVALID_COUNT"}`]: '0x10 1x60' },
    silentAt: '5m',
    firesAt: '6m',
    labels: { ...JOB, code: 'INVALID_COUNT' },
    summary: 'Requests of idalloc became dead letters as INVALID_COUNT.',
  },
  {
    alert: 'IdallocDeadLetterFlood',
    series: { [`idalloc_dead_letter_ranges_total{${AT}}`]: '0+5x60' },
    silentAt: '5m',
    firesAt: '7m',
    labels: JOB,
    summary: 'Bad requests of idalloc exceed the rate up to which each gets a dead letter of its own.',
  },
  {
    alert: 'IdallocWorkerDown',
    series: { [`up{${AT}}`]: '1x4 0x60' },
    silentAt: '4m',
    firesAt: '5m',
    labels: WORKER,
    summary: `${A} can't be scraped.`,
  },
  {
    alert: 'IdallocGateClosed',
    series: { [`idalloc_gate{${AT},reason="CLOCK_DRIFT"}`]: '1x60', [`idalloc_gate{${AT},reason="open"}`]: '0x60' },
    silentAt: '4m',
    firesAt: '6m',
    labels: { ...WORKER, reason: 'CLOCK_DRIFT' },
    summary: `${A} does not serve, because of CLOCK_DRIFT.`,
  },
  {
    alert: 'IdallocNotInGroup',
    series: { ...OPEN, [`idalloc_group_joined{${AT}}`]: '0x60' },
    silentAt: '1m',
    firesAt: '3m',
    labels: WORKER,
    summary: `${A} could serve, but is not a member of the request group.`,
  },
  {
    alert: 'IdallocKafkaSilent',
    series: { [`idalloc_kafka_silence_seconds{${AT}}`]: '0x2 31x60' },
    silentAt: '1m',
    firesAt: '2m',
    labels: WORKER,
    summary: 'No broker has answered the worker a:9464 of idalloc for 31s.',
  },
  {
    alert: 'IdallocPartitionUnreached',
    series: {
      [`idalloc_partition_unreached_seconds{${AT},broker="kafka-2:9092",topic="ledger",partition="3"}`]: '40x60',
      [`idalloc_partition_unreached_seconds{${AT},broker="kafka-2:9092",topic="requests",partition="4"}`]: '5x60',
    },
    firesAt: '0s',
    labels: { ...WORKER, broker: 'kafka-2:9092' },
    summary: 'The broker kafka-2:9092 does not answer the worker a:9464 of idalloc, whose partitions depend on it.',
  },
  {
    alert: 'IdallocKafkaRefused',
    series: { [`idalloc_kafka_refused{${AT},resource="ledger"}`]: '1x60' },
    silentAt: '30s',
    firesAt: '2m',
    labels: { ...WORKER, resource: 'ledger' },
    summary: 'The brokers refuse the worker a:9464 of idalloc: ledger.',
  },
  {
    alert: 'IdallocLedgerStopped',
    series: { [`idalloc_ledger_stopped_partitions{${AT}}`]: '0x2 2x60' },
    silentAt: '1m',
    firesAt: '2m',
    labels: WORKER,
    summary: `${A} can't read 2 ledger partitions, so their requests wait.`,
  },
  {
    alert: 'IdallocLedgerLost',
    series: { [`idalloc_ledger_losses_total{${AT}}`]: '0x10 1x60' },
    silentAt: '5m',
    firesAt: '6m',
    labels: WORKER,
    summary: 'The ledger of idalloc has lost entries, as the worker a:9464 has noticed.',
  },
  {
    alert: 'IdallocClusterChanged',
    series: { [`idalloc_gate{${AT},reason="CLUSTER_CHANGED"}`]: '0x2 1x60' },
    silentAt: '1m',
    firesAt: '2m',
    labels: JOB,
    summary: 'Workers of idalloc wait, since their brokers belong to another Kafka cluster than before.',
  },
  {
    alert: 'IdallocHeadsNotKept',
    series: { [`idalloc_ledger_heads_failing_seconds{${AT}}`]: '0+30x60' },
    silentAt: '3m',
    firesAt: '4m',
    labels: WORKER,
    summary:
      'etcd has not confirmed for 4m 0s how far the ledger partitions of the worker a:9464 of idalloc have gone.',
  },
  {
    alert: 'IdallocPartitionsAdded',
    series: { [`idalloc_topic_added_partitions{${AT},topic="requests"}`]: '0x2 1x60' },
    silentAt: '1m',
    firesAt: '2m',
    labels: { ...JOB, topic: 'requests' },
    summary:
      'Partitions were added to the topic of requests of idalloc. Workers serve those from before, and requests may take a detour.',
  },
  {
    alert: 'IdallocTopicsChanged',
    series: { [`idalloc_topic_faults{${AT},code="LEDGER_RETENTION"}`]: '0x2 1x60' },
    silentAt: '1m',
    firesAt: '2m',
    labels: { ...JOB, code: 'LEDGER_RETENTION' },
    summary: 'No worker of idalloc could start on the topics as they are now: LEDGER_RETENTION.',
  },
  {
    alert: 'IdallocEtcdCallsFail',
    series: {
      [`idalloc_etcd_call_seconds_count{${AT},call="keep_alive",outcome="failed"}`]: '0+3x60',
      [`idalloc_etcd_call_seconds_count{${AT},call="keep_alive",outcome="answered"}`]: '10x60',
      [`idalloc_etcd_call_seconds_count{${AT},call="get",outcome="answered"}`]: '0+1x60',
    },
    silentAt: '2m',
    firesAt: '3m',
    labels: WORKER,
    summary: 'etcd does not answer 75% of the calls of the worker a:9464 of idalloc.',
  },
  {
    alert: 'IdallocEtcdRefuses',
    series: {
      [`idalloc_etcd_call_seconds_count{${AT},call="transact",outcome="refused"}`]: '0+1x60',
      [`idalloc_etcd_call_seconds_count{${AT},call="transact",outcome="answered"}`]: '10x60',
      [`idalloc_etcd_call_seconds_count{${AT},call="get",outcome="answered"}`]: '0+3x60',
    },
    silentAt: '1m',
    firesAt: '2m',
    labels: WORKER,
    summary: 'etcd refuses 25% of the calls of the worker a:9464 of idalloc.',
  },
  {
    alert: 'IdallocEtcdAlarm',
    series: {
      [`idalloc_etcd_alarm{${AT},alarm="NOSPACE"}`]: '0x2 1x60',
      [`idalloc_etcd_alarm{${AT},alarm="CORRUPT"}`]: '0x60',
    },
    silentAt: '1m',
    firesAt: '2m',
    labels: { ...JOB, alarm: 'NOSPACE' },
    summary: 'etcd refuses writes of idalloc, since it has raised the alarm NOSPACE.',
  },
  {
    alert: 'IdallocEtcdDatabaseLarge',
    series: {
      [`idalloc_etcd_database_bytes{${AT},endpoint="http://e1:2379"}`]: '75x10 80x60',
      [`idalloc_etcd_database_bytes{${AT},endpoint="http://e2:2379"}`]: '10x70',
      [`idalloc_etcd_quota_bytes{${AT}}`]: '100x70',
    },
    silentAt: '10m',
    firesAt: '11m',
    labels: { ...JOB, endpoint: 'http://e1:2379' },
    summary: 'The database of http://e1:2379 has 80% of its quota, at which etcd refuses writes of idalloc.',
  },
  {
    alert: 'IdallocCeilingNear',
    series: {
      ...OPEN,
      [`idalloc_reservation_seconds{${AT}}`]: '25x60',
      [`idalloc_ceiling_margin_seconds{${AT}}`]: '15x2 12x60',
    },
    silentAt: '1m',
    firesAt: '2m',
    labels: WORKER,
    summary: `${A} raises its ceiling late, and can allocate for 12s only.`,
  },
  {
    alert: 'IdallocClockDrift',
    series: {
      [`idalloc_clock_drift_seconds{${AT},bound="low"}`]: '-0.4x60',
      [`idalloc_clock_drift_seconds{${AT},bound="high"}`]: '-0.3x60',
    },
    silentAt: '4m',
    firesAt: '6m',
    labels: { ...WORKER, bound: 'high' },
    summary: "The clock of the worker a:9464 of idalloc is -300ms off the brokers'.",
  },
  {
    alert: 'IdallocBrokerClock',
    series: {
      [`idalloc_broker_clock_margin_seconds{${AT}}`]: '120x60',
      [`idalloc_broker_clock_lead_seconds{${AT},broker="1"}`]: '59x60',
      [`idalloc_broker_clock_lead_seconds{${AT},broker="2"}`]: '0x4 -61x60',
    },
    silentAt: '3m',
    firesAt: '7m',
    labels: { ...WORKER, broker: '2' },
    summary: 'The clock of the broker 2 is 1m 1s off that of the worker a:9464 of idalloc.',
  },
  {
    alert: 'IdallocConsumerLag',
    series: {
      [`idalloc_consumer_lag_records{${AT},partition="3"}`]: '6000x60',
      [`idalloc_consumer_lag_records{${AT},partition="4"}`]: '5000x60',
    },
    silentAt: '9m',
    firesAt: '11m',
    labels: JOB,
    summary: '11000 requests of idalloc are not answered yet.',
  },
  {
    alert: 'IdallocStandbyMissing',
    series: {
      [`idalloc_standbys_wanted{${AT}}`]: '2x60',
      [`idalloc_partition_state{${AT},partition="3",state="serving"}`]: '1x60',
      [`idalloc_partition_state{${AT},partition="4",state="serving"}`]: '1x60',
      'idalloc_partition_state{job="idalloc",instance="b:9464",partition="3",state="following"}': '1x60',
      'idalloc_partition_state{job="idalloc",instance="c:9464",partition="3",state="restoring"}': '1x60',
      'idalloc_partition_state{job="idalloc",instance="b:9464",partition="4",state="following"}': '1x60',
      'idalloc_partition_state{job="idalloc",instance="c:9464",partition="4",state="following"}': '1x60',
    },
    silentAt: '14m',
    firesAt: '16m',
    labels: PARTITION,
    summary: 'Ledger partition 3 of idalloc has too few standbys, so a takeover waits for a restore.',
  },
  {
    alert: 'IdallocConnectionsShed',
    series: { [`idalloc_connections_shed_total{${AT},listener="api"}`]: '0+60x60' },
    silentAt: '7m',
    firesAt: '9m',
    labels: { ...WORKER, listener: 'api' },
    summary: 'The listener api of a:9464 of idalloc closes connections at its limit.',
  },
  {
    alert: 'IdallocCertificateExpires',
    series: { [`idalloc_certificate_expiry_timestamp_seconds{${AT},variable="API_TLS_CERT"}`]: '867600x200' },
    silentAt: '30m',
    firesAt: '1h',
    labels: { ...WORKER, variable: 'API_TLS_CERT' },
    summary: 'The certificate in API_TLS_CERT of a:9464 of idalloc expires in 10d 0h 0m 0s.',
  },
  {
    alert: 'IdallocLayoutEnds',
    series: { [`idalloc_layout_end_timestamp_seconds{${AT}}`]: '8643600x200' },
    silentAt: '30m',
    firesAt: '1h',
    labels: JOB,
    summary: 'The layout of idalloc has no IDs left in 100d 0h 0m 0s.',
  },
];

/** Series of two workers that serve: nothing may fire. */
export const CALM: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    ['a', 'b'].flatMap((host) => {
      const at = `job="idalloc",instance="${host}:9464"`;
      return [
        [`up{${at}}`, '1x240'],
        [`idalloc_group_joined{${at}}`, '1x240'],
        [`idalloc_gate{${at},reason="open"}`, '1x240'],
        [`idalloc_gate{${at},reason="STARTING"}`, '0x240'],
        [`idalloc_kafka_silence_seconds{${at}}`, '0.2x240'],
        [`idalloc_kafka_refused{${at},resource="login"}`, '0x240'],
        [`idalloc_ledger_stopped_partitions{${at}}`, '0x240'],
        [`idalloc_topic_added_partitions{${at},topic="requests"}`, '0x240'],
        [`idalloc_topic_faults{${at},code="LEDGER_WEAK"}`, '0x240'],
        [`idalloc_dead_letters_total{${at},code="INVALID_COUNT"}`, '3x240'],
        [`idalloc_dead_letter_ranges_total{${at}}`, '1x240'],
        [`idalloc_reservation_seconds{${at}}`, '25x240'],
        [`idalloc_ceiling_margin_seconds{${at}}`, '15x240'],
        [`idalloc_etcd_call_seconds_count{${at},call="keep_alive",outcome="answered"}`, '0+3x240'],
        [`idalloc_etcd_call_seconds_count{${at},call="keep_alive",outcome="failed"}`, '2x240'],
        [`idalloc_clock_drift_seconds{${at},bound="low"}`, '-0.3x240'],
        [`idalloc_clock_drift_seconds{${at},bound="high"}`, '0.3x240'],
        [`idalloc_broker_clock_margin_seconds{${at}}`, '120x240'],
        [`idalloc_broker_clock_lead_seconds{${at},broker="1"}`, '-0.2x240'],
        [`idalloc_batch_seconds_bucket{${at},le="1"}`, '0+100x240'],
        [`idalloc_batch_seconds_bucket{${at},le="+Inf"}`, '0+100x240'],
        [`idalloc_request_oldest_unread_seconds{${at},partition="${host === 'a' ? 3 : 4}"}`, '0x240'],
        [`idalloc_consumer_lag_records{${at},partition="${host === 'a' ? 3 : 4}"}`, '100x240'],
        [`idalloc_connections_shed_total{${at},listener="ops"}`, '0+1x240'],
        [`idalloc_standbys_wanted{${at}}`, '1x240'],
        [`idalloc_layout_end_timestamp_seconds{${at}}`, '3966451200x240'],
      ];
    }),
  ),
  'idalloc_partition_state{job="idalloc",instance="a:9464",partition="3",state="serving"}': '1x240',
  'idalloc_partition_state{job="idalloc",instance="b:9464",partition="3",state="following"}': '1x240',
  'idalloc_partition_state{job="idalloc",instance="b:9464",partition="4",state="serving"}': '1x240',
  'idalloc_partition_state{job="idalloc",instance="a:9464",partition="4",state="following"}': '1x240',
};
