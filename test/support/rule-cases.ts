/** A case of an alert: series of one deployment, and when Prometheus must fire it. */
export interface RuleCase {
  readonly alert: string;
  /** By selector, in Prometheus' notation of test series: a value for each half minute. */
  readonly series: Series;
  /** The last moment at which it must still be silent; undefined if it fires at once. */
  readonly silentAt?: string;
  readonly firesAt: string;
  /** Besides its severity. */
  readonly labels: Readonly<Record<string, string>>;
  readonly summary: string;
}

type Series = Readonly<Record<string, string>>;

/**
 * One for each alert, in the order of the rules: its name, when it must still be silent, or -, when it must fire, and
 * with which labels; its series; and its summary. `worker` are the labels of the worker a, `job` that of its
 * deployment.
 */
const CASES = `
IdallocNoWorkerServes 6m 7m job
  up{@a} 1x70
  idalloc_group_joined{@a} 1x10 0x60
  idalloc_group_joined{@b} 0x70
  up{job="idalloc-us",instance="c:9464"} 1x70
  idalloc_group_joined{job="idalloc-us",instance="c:9464"} 1x70
    No worker of idalloc is a member of the request group, so no request is answered.
IdallocRequestsUnanswered 3m 4m job partition=3
  idalloc_gate{@a,reason="open"} 1x60
  idalloc_request_oldest_unread_seconds{@a,partition="3"} 0+30x60
    A request in partition 3 of idalloc has waited for 4m 0s.
IdallocRequestsUnanswered 3m 4m job partition=5
  idalloc_gate{@a,reason="CLOCK_DRIFT"} 1x60
  idalloc_gate{@a,reason="open"} 0x60
  idalloc_request_oldest_unread_seconds{@a,partition="5"} 0+90x60
  idalloc_group_oldest_unread_seconds{@a,partition="5"} 0+30x60
  idalloc_group_oldest_unread_seconds{@b,partition="5"} 0+29x60
    A request in partition 5 of idalloc has waited for 4m 0s.
IdallocRequestsRefused 2m 3m job code=EXPIRED
  idalloc_errors_total{@a,code="EXPIRED"} 0+30x60
  idalloc_errors_total{@a,code="CONFLICT"} 0+1x60
  idalloc_requests_total{@a,result="refused"} 0+30x60
  idalloc_requests_total{@a,result="issued"} 0+90x60
    25% of the requests of idalloc are refused as EXPIRED.
IdallocMostRequestsRefused 2m 3m job
  idalloc_requests_total{@a,result="refused"} 0+90x60
  idalloc_requests_total{@a,result="issued"} 0+10x60
    90% of the requests of idalloc are refused.
IdallocHttpFails 2m 3m job
  idalloc_http_requests_total{@a,route="/api/v1/ids",status="503",caller="anonymous"} 0+30x60
  idalloc_http_requests_total{@a,route="/api/v1/ids",status="200",caller="anonymous"} 0+90x60
    25% of the HTTP requests of idalloc fail.
IdallocHttpSlow 9m 12m job
  idalloc_http_request_seconds_bucket{@a,route="/api/v1/ids",le="1"} 0x60
  idalloc_http_request_seconds_bucket{@a,route="/api/v1/ids",le="2.5"} 0+10x60
  idalloc_http_request_seconds_bucket{@a,route="/api/v1/ids",le="+Inf"} 0+10x60
    One in a hundred HTTP requests of idalloc takes 2.485s or longer.
IdallocAnswersSlow 9m 12m job
  idalloc_batch_seconds_bucket{@a,le="1"} 0x60
  idalloc_batch_seconds_bucket{@a,le="2.5"} 0+10x60
  idalloc_batch_seconds_bucket{@a,le="+Inf"} 0+10x60
    One in a hundred record batches of idalloc takes 2.485s or longer to answer.
IdallocLargeRequestsWait 3m 5m job partition=3
  idalloc_large_request_oldest_seconds{@a,partition="3"} 0+30x60
    A large request in partition 3 of idalloc has waited for 5m 0s.
IdallocSequenceStopped 5m 11m job
  idalloc_sequences_stopped{@a} 0x10 2x60
    Sequences of idalloc give out no numbers, because the ledger contradicts etcd.
IdallocNumbersLost 5m 6m job
  idalloc_sequence_losses_total{@a} 0x10 1x60
    The ledger of idalloc has lost numbers of sequences, which go on behind them.
IdallocDeadLetters 5m 6m job code=INVALID_COUNT
  idalloc_dead_letters_total{@a,code="INVALID_COUNT"} 0x10 20x60
    Requests of idalloc became dead letters as INVALID_COUNT.
IdallocDeadLetterFlood 5m 7m job
  idalloc_dead_letter_ranges_total{@a} 0+5x60
    Bad requests of idalloc exceed the rate up to which each gets a dead letter of its own.
IdallocWorkerDown 4m 5m worker
  up{@a} 1x4 0x60
    The worker a:9464 of idalloc can't be scraped.
IdallocWorkersMissing 24m 27m job
  up{@a} 1x100
  up{@b} 1x10
    Fewer workers of idalloc run than in the last hour: 1.
IdallocRestarts 16m 17m worker
  process_start_time_seconds{@a} 100x10 200x10 300x10 400x60
    The worker a:9464 of idalloc has started again 3 times in an hour.
IdallocNoSpareWorkerId 14m 16m job
  idalloc_pool_worker_ids{@a} 2x60
  idalloc_pool_worker_ids{@b} 2x60
    The workers of idalloc hold all worker IDs of their pool, so a replaced one waits.
IdallocIndexDiskFull 4m 6m worker
  idalloc_index_disk_bytes{@a} 100x60
  idalloc_index_disk_free_bytes{@a} 5x60
    The disk of the index of a:9464 of idalloc has 5% left.
IdallocGateClosed 4m 6m worker reason=CLOCK_DRIFT
  idalloc_gate{@a,reason="CLOCK_DRIFT"} 1x60
  idalloc_gate{@a,reason="open"} 0x60
    The worker a:9464 of idalloc does not serve, because of CLOCK_DRIFT.
IdallocNotInGroup 1m 3m worker
  idalloc_gate{@a,reason="open"} 1x60
  idalloc_group_joined{@a} 0x60
    The worker a:9464 of idalloc could serve, but is not a member of the request group.
IdallocKafkaSilent 1m 2m worker
  idalloc_kafka_silence_seconds{@a} 0x2 31x60
    No broker has answered the worker a:9464 of idalloc for 31s.
IdallocPartitionUnreached - 0s worker broker=kafka-2:9092
  idalloc_partition_unreached_seconds{@a,broker="kafka-2:9092",topic="ledger",partition="3"} 40x60
  idalloc_partition_unreached_seconds{@a,broker="kafka-2:9092",topic="requests",partition="4"} 5x60
    The broker kafka-2:9092 does not answer the worker a:9464 of idalloc, whose partitions depend on it.
IdallocKafkaRefused 30s 2m worker resource=ledger
  idalloc_kafka_refused{@a,resource="ledger"} 1x60
    The brokers refuse the worker a:9464 of idalloc: ledger.
IdallocLedgerStopped 1m 2m worker
  idalloc_ledger_stopped_partitions{@a} 0x2 2x60
    The worker a:9464 of idalloc can't read 2 ledger partitions, so their requests wait.
IdallocLedgerLost 5m 6m worker
  idalloc_ledger_losses_total{@a} 0x10 1x60
    The ledger of idalloc has lost entries, as the worker a:9464 has noticed.
IdallocClusterChanged 1m 2m job
  idalloc_gate{@a,reason="CLUSTER_CHANGED"} 0x2 1x60
    Workers of idalloc wait, since their brokers belong to another Kafka cluster than before.
IdallocHeadsNotKept 3m 4m worker
  idalloc_ledger_heads_failing_seconds{@a} 0+30x60
    etcd has not confirmed for 4m 0s how far the ledger partitions of the worker a:9464 of idalloc have gone.
IdallocPartitionsAdded 1m 2m job topic=requests
  idalloc_topic_added_partitions{@a,topic="requests"} 0x2 1x60
    Partitions were added to the topic of requests of idalloc. Workers serve those from before, and requests may take a detour.
IdallocTopicsChanged 1m 2m job code=LEDGER_RETENTION
  idalloc_topic_faults{@a,code="LEDGER_RETENTION"} 0x2 1x60
    No worker of idalloc could start on the topics as they are now: LEDGER_RETENTION.
IdallocEtcdCallsFail 2m 3m worker
  idalloc_etcd_call_seconds_count{@a,call="keep_alive",outcome="failed"} 0+3x60
  idalloc_etcd_call_seconds_count{@a,call="keep_alive",outcome="answered"} 10x60
  idalloc_etcd_call_seconds_count{@a,call="get",outcome="answered"} 0+1x60
    etcd does not answer 75% of the calls of the worker a:9464 of idalloc.
IdallocEtcdRefuses 1m 2m worker
  idalloc_etcd_call_seconds_count{@a,call="transact",outcome="refused"} 0+1x60
  idalloc_etcd_call_seconds_count{@a,call="transact",outcome="answered"} 10x60
  idalloc_etcd_call_seconds_count{@a,call="get",outcome="answered"} 0+3x60
    etcd refuses 25% of the calls of the worker a:9464 of idalloc.
IdallocEtcdAlarm 1m 2m job alarm=NOSPACE
  idalloc_etcd_alarm{@a,alarm="NOSPACE"} 0x2 1x60
  idalloc_etcd_alarm{@a,alarm="CORRUPT"} 0x60
    etcd refuses writes of idalloc, since it has raised the alarm NOSPACE.
IdallocEtcdDatabaseLarge 10m 11m job endpoint=http://e1:2379
  idalloc_etcd_database_bytes{@a,endpoint="http://e1:2379"} 75x10 80x60
  idalloc_etcd_database_bytes{@a,endpoint="http://e2:2379"} 10x70
  idalloc_etcd_quota_bytes{@a} 100x70
    The database of http://e1:2379 has 80% of its quota, at which etcd refuses writes of idalloc.
IdallocCeilingNear 1m 2m worker
  idalloc_gate{@a,reason="open"} 1x60
  idalloc_reservation_seconds{@a} 25x60
  idalloc_ceiling_margin_seconds{@a} 15x2 12x60
    The worker a:9464 of idalloc raises its ceiling late, and can allocate for 12s only.
IdallocClockDrift 4m 6m worker bound=high
  idalloc_clock_drift_seconds{@a,bound="low"} -0.4x60
  idalloc_clock_drift_seconds{@a,bound="high"} -0.3x60
    The clock of the worker a:9464 of idalloc is -300ms off the brokers'.
IdallocBrokerClock 3m 7m worker broker=2
  idalloc_broker_clock_margin_seconds{@a} 120x60
  idalloc_broker_clock_lead_seconds{@a,broker="1"} 59x60
  idalloc_broker_clock_lead_seconds{@a,broker="2"} 0x4 -61x60
    The clock of the broker 2 is 1m 1s off that of the worker a:9464 of idalloc.
IdallocConsumerLag 9m 11m job
  idalloc_consumer_lag_records{@a,partition="3"} 6000x60
  idalloc_consumer_lag_records{@a,partition="4"} 5000x60
    11000 requests of idalloc are not answered yet.
IdallocStandbyMissing 14m 16m job partition=3
  idalloc_standbys_wanted{@a} 2x60
  idalloc_partition_state{@a,partition="3",state="serving"} 1x60
  idalloc_partition_state{@a,partition="4",state="serving"} 1x60
  idalloc_partition_state{@b,partition="3",state="following"} 1x60
  idalloc_partition_state{@c,partition="3",state="restoring"} 1x60
  idalloc_partition_state{@b,partition="4",state="following"} 1x60
  idalloc_partition_state{@c,partition="4",state="following"} 1x60
    Ledger partition 3 of idalloc has too few standbys, so a takeover waits for a restore.
IdallocConnectionsShed 7m 9m worker listener=api
  idalloc_connections_shed_total{@a,listener="api"} 0+60x60
    The listener api of a:9464 of idalloc closes connections at its limit.
IdallocFailureBudgetBurns 0s 2m job
  idalloc_errors_total{@a,code="FORGOTTEN"} 0+3x60
  idalloc_errors_total{@a,code="EXPIRED"} 0+7x60
  idalloc_requests_total{@a,result="refused"} 0+10x60
  idalloc_requests_total{@a,result="issued"} 0+90x60
    3% of the requests of idalloc failed within an hour.
IdallocFailureBudgetShrinks 0s 2m job
  idalloc_http_requests_total{@a,route="/api/v1/ids",status="503",caller="anonymous"} 0+1x60
  idalloc_http_requests_total{@a,route="/api/v1/ids",status="200",caller="anonymous"} 0+9x60
  idalloc_requests_total{@a,result="issued"} 0+90x60
    1% of the requests of idalloc failed within six hours.
IdallocLatencyBudgetBurns 0s 2m job
  idalloc_batch_seconds_bucket{@a,le="1"} 0+80x60
  idalloc_batch_seconds_count{@a} 0+100x60
    20% of the record batches of idalloc took longer than a second within an hour.
IdallocLatencyBudgetShrinks 0s 2m job
  idalloc_batch_seconds_bucket{@a,le="1"} 0+90x60
  idalloc_batch_seconds_count{@a} 0+100x60
    10% of the record batches of idalloc took longer than a second within six hours.
IdallocCertificateExpires 10m 1h worker variable=API_TLS_CERT
  idalloc_certificate_life_seconds{@a,variable="API_TLS_CERT"} 7776000x200
  idalloc_certificate_life_seconds{@a,variable="ETCD_CERT"} 86400x200
  idalloc_certificate_expiry_timestamp_seconds{@a,variable="ETCD_CERT"} 24000x200
  idalloc_certificate_expiry_timestamp_seconds{@a,variable="API_TLS_CERT"} 867600x200
    The certificate in API_TLS_CERT of a:9464 of idalloc expires in 10d 0h 0m 0s.
IdallocLayoutEnds 30m 1h job
  idalloc_layout_end_timestamp_seconds{@a} 8643600x200
    The layout of idalloc has no IDs left in 100d 0h 0m 0s.
`;

/** What each of two workers has that serve; # is the partition of each. */
const SERVING = `
up{@} 1x240
idalloc_group_joined{@} 1x240
idalloc_gate{@,reason="open"} 1x240
idalloc_gate{@,reason="STARTING"} 0x240
idalloc_kafka_silence_seconds{@} 0.2x240
idalloc_kafka_refused{@,resource="login"} 0x240
idalloc_ledger_stopped_partitions{@} 0x240
idalloc_topic_added_partitions{@,topic="requests"} 0x240
idalloc_topic_faults{@,code="LEDGER_WEAK"} 0x240
idalloc_dead_letters_total{@,code="INVALID_COUNT"} 3x100 4x140
idalloc_errors_total{@,code="INVALID_COUNT"} 3x100 4x140
idalloc_requests_total{@,result="refused"} 3x100 4x140
idalloc_requests_total{@,result="issued"} 0+100x240
idalloc_http_requests_total{@,route="/api/v1/ids",status="200",caller="anonymous"} 0+50x240
idalloc_http_request_seconds_bucket{@,route="/api/v1/ids",le="1"} 0+50x240
idalloc_http_request_seconds_bucket{@,route="/api/v1/ids",le="+Inf"} 0+50x240
process_start_time_seconds{@} 1000x240
idalloc_pool_worker_ids{@} 32x240
idalloc_index_disk_bytes{@} 100x240
idalloc_index_disk_free_bytes{@} 40x240
idalloc_batch_seconds_count{@} 0+100x240
idalloc_dead_letter_ranges_total{@} 1x240
idalloc_reservation_seconds{@} 25x240
idalloc_ceiling_margin_seconds{@} 15x240
idalloc_etcd_call_seconds_count{@,call="keep_alive",outcome="answered"} 0+3x240
idalloc_etcd_call_seconds_count{@,call="keep_alive",outcome="failed"} 2x240
idalloc_clock_drift_seconds{@,bound="low"} -0.3x240
idalloc_clock_drift_seconds{@,bound="high"} 0.3x240
idalloc_broker_clock_margin_seconds{@} 120x240
idalloc_broker_clock_lead_seconds{@,broker="1"} -0.2x240
idalloc_batch_seconds_bucket{@,le="1"} 0+100x240
idalloc_batch_seconds_bucket{@,le="+Inf"} 0+100x240
idalloc_request_oldest_unread_seconds{@,partition="#"} 0x240
idalloc_consumer_lag_records{@,partition="#"} 100x240
idalloc_connections_shed_total{@,listener="ops"} 0+1x240
idalloc_standbys_wanted{@} 1x240
idalloc_layout_end_timestamp_seconds{@} 3966451200x240
`;

const STATES = `
idalloc_partition_state{@a,partition="3",state="serving"} 1x240
idalloc_partition_state{@b,partition="3",state="following"} 1x240
idalloc_partition_state{@b,partition="4",state="serving"} 1x240
idalloc_partition_state{@a,partition="4",state="following"} 1x240
`;

const CASE =
  /^(?<alert>\w+) (?<silentAt>\S+) (?<firesAt>\S+)(?<labels>.*)\n(?<series>(?: {2}\w.+\n)+) {4}(?<summary>.+)$/gm;
const JOB = { job: 'idalloc' };
const LABELS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  job: JOB,
  worker: { ...JOB, instance: 'a:9464' },
};

function seriesOf(text: string): Series {
  const whole = text.replaceAll(/@(\w)/g, 'job="idalloc",instance="$1:9464"');
  return Object.fromEntries([...whole.matchAll(/^ *(\S+) (.+)$/gm)].map(([, name, values]) => [name, values]));
}

export const RULE_CASES: readonly RuleCase[] = [...CASES.matchAll(CASE)].map(({ groups = {} }) => {
  const { alert = '', silentAt = '', firesAt = '', labels = '', series = '', summary = '' } = groups;
  const named = labels
    .split(' ')
    .filter((word) => word !== '')
    .map((word) => LABELS[word] ?? Object.fromEntries([word.split('=')]));
  const silent = silentAt === '-' ? {} : { silentAt };
  return { alert, ...silent, firesAt, labels: Object.assign({}, ...named), series: seriesOf(series), summary };
});

/** Series of two workers that serve, each of which gets one bad request: nothing may fire. */
export const CALM: Series = {
  ...seriesOf(SERVING.replaceAll('@', '@a').replaceAll('#', '3')),
  ...seriesOf(SERVING.replaceAll('@', '@b').replaceAll('#', '4')),
  ...seriesOf(STATES),
};
