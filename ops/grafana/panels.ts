/** One line, or family of lines, of a panel. `$job` and `$__rate_interval` are Grafana's variables. */
interface Query {
  readonly expr: string;
  /** Grafana's pattern for the name of a line. */
  readonly legend: string;
}

/** A panel of the dashboard. */
export interface PanelSpec {
  readonly title: string;
  /** What it shows, and what to do with it. */
  readonly about: string;
  /** `now`: the last value, in large. */
  readonly kind: 'now' | 'over time';
  readonly unit: 'short' | 's' | 'reqps' | 'bytes' | 'percentunit' | 'dtdurations';
  readonly queries: readonly Query[];
}

export interface RowSpec {
  readonly title: string;
  readonly panels: readonly PanelSpec[];
}

const JOB = 'job=~"$job"';

/** A metric of the chosen jobs, with more selectors. */
function of(metric: string, ...selectors: readonly string[]): string {
  return `${metric}{${[JOB, ...selectors].join(',')}}`;
}

function rate(counter: string, ...selectors: readonly string[]): string {
  return `rate(${of(counter, ...selectors)}[$__rate_interval])`;
}

function sumBy(label: string, expr: string): Query {
  return { expr: `sum by (${label}) (${expr})`, legend: `{{${label}}}` };
}

function total(legend: string, expr: string): Query {
  return { expr: `sum(${expr})`, legend };
}

function worst(expr: string, legend: string, by = ''): Query {
  return { expr: `max ${by === '' ? '' : `by (${by}) `}(${expr})`, legend };
}

/** A percentile of a histogram, by a label if there is one. */
function percentile(of_: number, histogram: string, by?: string): Query {
  const labels = by === undefined ? 'le' : `${by}, le`;
  const expr = `histogram_quantile(${of_}, sum by (${labels}) (${rate(`${histogram}_bucket`)}))`;
  return { expr, legend: by === undefined ? `p${of_ * 100}` : `{{${by}}}` };
}

function now(title: string, unit: PanelSpec['unit'], about: string, ...queries: readonly Query[]): PanelSpec {
  return { title, about, unit, queries, kind: 'now' };
}

function overTime(title: string, unit: PanelSpec['unit'], about: string, ...queries: readonly Query[]): PanelSpec {
  return { title, about, unit, queries, kind: 'over time' };
}

/** The dashboard, from what requesters notice to its causes. */
export const ROWS: readonly RowSpec[] = [
  {
    title: 'Now',
    panels: [
      now('Workers that serve', 'short', 'Members of the request group.', total('', of('idalloc_group_joined'))),
      now(
        'Gates closed',
        'short',
        'Workers that do not allocate. The panel Gate has the reasons.',
        total('', of('idalloc_gate', 'reason!="open"')),
      ),
      now(
        'Oldest request',
        's',
        'How long the oldest unanswered request has waited, also in a partition that nobody serves.',
        {
          expr: `max(${of('idalloc_group_oldest_unread_seconds')} or ${of('idalloc_request_oldest_unread_seconds')})`,
          legend: '',
        },
      ),
      now('IDs/s', 'short', 'IDs in new batches.', total('', rate('idalloc_ids_total'))),
      now('Version', 'short', 'Workers by version.', sumBy('version', of('idalloc_build_info'))),
      now('Layout ends in', 'dtdurations', 'From then on there are no IDs.', {
        expr: `min(${of('idalloc_layout_end_timestamp_seconds')}) - time()`,
        legend: '',
      }),
    ],
  },
  {
    title: 'What requesters notice',
    panels: [
      overTime('Requests', 'reqps', 'Answered requests by result.', sumBy('result', rate('idalloc_requests_total'))),
      overTime(
        'Time to answer a batch',
        's',
        'From its delivery until all of it is answered.',
        percentile(0.5, 'idalloc_batch_seconds'),
        percentile(0.99, 'idalloc_batch_seconds'),
      ),
      overTime(
        'Waiting',
        'short',
        'Requests not answered yet; large ones and those for numbers wait beside the others.',
        total('requests', of('idalloc_consumer_lag_records')),
        { expr: `sum(${of('idalloc_large_requests_waiting')}) or vector(0)`, legend: 'of them large' },
        { expr: `sum(${of('idalloc_number_requests_waiting')}) or vector(0)`, legend: 'of them for numbers' },
      ),
      overTime(
        'IDs and numbers',
        'short',
        'Given out for the first time, per second.',
        total('IDs', rate('idalloc_ids_total')),
        total('numbers of sequences', rate('idalloc_sequence_numbers_total')),
      ),
      overTime('Errors', 'reqps', 'By code; the runbook has each.', sumBy('code', rate('idalloc_errors_total'))),
      overTime('Dead letters', 'reqps', 'Requests by code.', sumBy('code', rate('idalloc_dead_letters_total'))),
      overTime('Refused by quota', 'reqps', 'By prefix.', sumBy('prefix', rate('idalloc_quota_exceeded_total'))),
      overTime('HTTP requests', 'reqps', 'By status.', sumBy('status', rate('idalloc_http_requests_total'))),
      overTime(
        'Time of HTTP requests',
        's',
        'The 99th percentile by route; requests with an Idempotency-Key wait for the ledger.',
        percentile(0.99, 'idalloc_http_request_seconds', 'route'),
      ),
      overTime(
        'What the ledger decides over HTTP',
        'reqps',
        'IDs with an Idempotency-Key, and numbers of sequences, by outcome.',
        sumBy('outcome', rate('idalloc_http_ledger_seconds_count')),
      ),
    ],
  },
  {
    title: 'Where the time goes',
    panels: [
      overTime(
        'Steps of an answer',
        's',
        'The 99th percentile. An append goes to the ledger; it is settled when the index shows what it decided.',
        percentile(0.99, 'idalloc_step_seconds', 'step'),
      ),
      overTime(
        'Calls of etcd',
        's',
        'The 99th percentile by call.',
        percentile(0.99, 'idalloc_etcd_call_seconds', 'call'),
      ),
      overTime(
        'Databases of etcd',
        'bytes',
        'By endpoint. At its quota etcd refuses writes, and no worker gets another reservation.',
        worst(of('idalloc_etcd_database_bytes'), '{{endpoint}}', 'endpoint'),
        worst(of('idalloc_etcd_quota_bytes'), 'quota'),
      ),
      overTime(
        'Delay of the event loop',
        's',
        'The 99th percentile since the last scrape; 20 ms are the interval of the samples.',
        worst(of('nodejs_eventloop_lag_p99_seconds'), '{{instance}}', 'instance'),
      ),
      overTime(
        'Detours',
        'reqps',
        'Requests forwarded to the partition of their key, deferred to let others go first, or answered again.',
        total('forwarded', rate('idalloc_requests_forwarded_total')),
        total('deferred', rate('idalloc_requests_deferred_total')),
        total('answered again', rate('idalloc_replays_total')),
      ),
      overTime(
        'Replies',
        'reqps',
        'Acknowledged by the brokers, or not sent because their topic had just refused others.',
        total('replies', rate('idalloc_replies_total')),
        total('not sent', rate('idalloc_replies_skipped_total')),
      ),
      overTime('CPU', 'percentunit', 'Of one core, by worker.', sumBy('instance', rate('process_cpu_seconds_total'))),
      overTime('Memory', 'bytes', 'Resident, by worker.', sumBy('instance', of('process_resident_memory_bytes'))),
    ],
  },
  {
    title: 'Identity and clock',
    panels: [
      overTime(
        'Gate',
        'short',
        'Workers by state: open, or the reason why they do not allocate.',
        sumBy('reason', `${of('idalloc_gate')} == 1`),
      ),
      overTime('Changes of the gate', 'short', 'In an hour, by the state that began.', {
        expr: `sum by (reason) (increase(${of('idalloc_gate_changes_total')}[1h]))`,
        legend: '{{reason}}',
      }),
      overTime(
        'Ceiling',
        's',
        'How long each worker may still allocate without etcd, and how long it may after each raise.',
        { expr: of('idalloc_ceiling_margin_seconds'), legend: '{{instance}}' },
        worst(of('idalloc_reservation_seconds'), 'reservation'),
      ),
      overTime('Lease', 's', 'Time until a worker stops without etcd.', {
        expr: of('idalloc_lease_margin_seconds'),
        legend: '{{instance}}',
      }),
      overTime(
        'Clock drift',
        's',
        "How far each clock is ahead of the brokers', at least and at most. Beyond 1 s a worker stops.",
        { expr: of('idalloc_clock_drift_seconds'), legend: '{{instance}} {{bound}}' },
      ),
      overTime(
        "Brokers' clocks",
        's',
        "How far each broker's clock is certainly ahead of the workers'. Beyond half of the margin an alert fires.",
        { expr: `max by (broker) (abs(${of('idalloc_broker_clock_lead_seconds')}))`, legend: 'broker {{broker}}' },
        worst(`0.5 * ${of('idalloc_broker_clock_margin_seconds')}`, 'half of the margin'),
      ),
      overTime('Certificates expire in', 'dtdurations', 'By variable.', {
        expr: `min by (variable) (${of('idalloc_certificate_expiry_timestamp_seconds')}) - time()`,
        legend: '{{variable}}',
      }),
    ],
  },
  {
    title: 'Kafka and the ledger',
    panels: [
      overTime('Copies of ledger partitions', 'short', 'By state.', sumBy('state', of('idalloc_partition_state'))),
      overTime(
        'Standbys wanted',
        'short',
        'For each ledger partition.',
        worst(of('idalloc_standbys_wanted'), 'standbys'),
      ),
      overTime(
        'Ledger lag',
        'short',
        'Entries that the copies lack, by worker.',
        sumBy('instance', of('idalloc_ledger_lag_records')),
      ),
      overTime('Restores', 'percentunit', 'The copy that has least; 1 when none is restored.', {
        expr: `min(${of('idalloc_restore_progress_ratio')}) or vector(1)`,
        legend: 'restored',
      }),
      overTime(
        'Silence of the brokers',
        's',
        'Time since any broker answered, by worker; and since the most silent one that a partition depends on did.',
        worst(of('idalloc_kafka_silence_seconds'), '{{instance}}', 'instance'),
        { expr: `max(${of('idalloc_partition_unreached_seconds')}) or vector(0)`, legend: 'a broker of a partition' },
      ),
      overTime(
        'Not served, or at risk',
        'short',
        'Ledger partitions that are stopped, added partitions, faults of topics, and resources that the brokers refuse.',
        worst(of('idalloc_ledger_stopped_partitions'), 'stopped'),
        worst(of('idalloc_topic_added_partitions'), 'added: {{topic}}', 'topic'),
        worst(of('idalloc_topic_faults'), 'topics: {{code}}', 'code'),
        worst(of('idalloc_kafka_refused'), 'refused: {{resource}}', 'resource'),
      ),
      overTime(
        'Connections shed',
        'short',
        'By listener, per second.',
        sumBy('listener', rate('idalloc_connections_shed_total')),
      ),
    ],
  },
];
