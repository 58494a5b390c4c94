import { ALERTS, type Rule } from '../prometheus/rules.ts';
import { cell, pageOf, table } from './markdown.ts';

const RUNBOOK = 'docs/operations/';

/** A summary with the names of its labels in place of Prometheus' templates. */
function plain(summary: string): string {
  return summary.replaceAll(/\{\{ \$labels\.(\w+) \}\}/g, '*$1*').replaceAll(/\{\{ \$value[^}]*\}\}/g, '*value*');
}

function row({ alert, labels, for: after = 'at once', annotations }: Rule): readonly string[] {
  const { summary, runbook_url: entry } = annotations;
  return [`[${alert}](${entry.replace(RUNBOOK, '')})`, labels.severity, after, cell(plain(summary))];
}

/** The page for operators of Prometheus and Grafana, with a table of the alerts. */
export function monitoring(): string {
  return pageOf(
    `# Monitor workers

For operators with Prometheus and Grafana. At the end Prometheus tells you when to act, and Grafana shows why. [The
chart](kubernetes.md) can install alerts and dashboard; without them, a worker has a [status page](running.md#start-and-verify).`,
    `## Scrape

Each worker serves its [metrics](../reference/metrics.md) at \`/metrics\` on \`OPS_PORT\`, rendered once a second at most. A remote
address may send that port 50 requests a second, besides those for \`/healthz\` and \`/readyz\`; more wait for
their turn. Give the workers of each request group a scrape job with \`idalloc\` in its name: the rules and the dashboard tell
groups apart by the label \`job\`.

\`\`\`yaml
rule_files: [rules.yml]
scrape_configs:
  - job_name: idalloc
    scrape_interval: 15s
    static_configs:
      - targets: ['worker-1:9464', 'worker-2:9464']
\`\`\``,
    `## Alerts

Copy \`ops/prometheus/rules.yml\`. It needs no change for other leases, layouts or standbys: the workers export what it compares with.
If etcd's members run with another \`--quota-backend-bytes\` than 2 GiB, set \`ETCD_QUOTA_BYTES\` of the workers to it.
\`page\` means that requests wait or soon will, \`ticket\` that you should look within a day. \`runbook_url\` is the path of the alert's
runbook entry in the checkout; the chart's \`monitoring.rules.runbook\` makes it an address.

Some thresholds are yours to choose (in the chart by \`monitoring.rules.thresholds\`): \`IdallocAnswersSlow\` fires above a second, \`IdallocConsumerLag\` above 10,000 requests,
\`IdallocRequestsRefused\` above a tenth, \`IdallocDeadLetters\` above ten in a quarter of an hour. The recorded series
\`idalloc:failures:ratio_rate1h\` and \`idalloc:slow:ratio_rate1h\`, and those over 5m, 30m and 6h, are the shares that objectives are about:
a thousandth of the requests may fail, and a hundredth of the record batches may take more than a second.

One outage is one page if Alertmanager groups by job, and what explains an alert silences it:

\`\`\`yaml
route: { receiver: on-call, group_by: [job, namespace] }
inhibit_rules:
  # Nobody serves: what requesters notice and what each worker lacks follows from it, but not why.
  - source_matchers: [alertname="IdallocNoWorkerServes"]
    target_matchers:
      - alertname=~"Idalloc.+"
      - alertname!~"IdallocNoWorkerServes|IdallocKafka.+|IdallocEtcd(Alarm|Refuses|CallsFail)|IdallocClusterChanged|IdallocTopicsChanged"
    equal: [job, namespace]
  - source_matchers: [alertname=~"IdallocKafkaSilent|IdallocKafkaRefused"]
    target_matchers: [alertname="IdallocPartitionUnreached"]
    equal: [job, namespace]
  - source_matchers: [alertname=~"IdallocKafkaSilent|IdallocPartitionUnreached|IdallocKafkaRefused"]
    target_matchers:
      - alertname=~"IdallocRequestsUnanswered|IdallocAnswersSlow|IdallocConsumerLag|IdallocNotInGroup|IdallocGateClosed|IdallocHttp.+"
    equal: [job, namespace]
  - source_matchers: [alertname="IdallocEtcdAlarm"]
    target_matchers: [alertname=~"IdallocEtcdRefuses|IdallocEtcdDatabaseLarge"]
    equal: [job, namespace]
  - source_matchers: [alertname=~"IdallocEtcdAlarm|IdallocEtcdRefuses"]
    target_matchers: [alertname=~"IdallocEtcdCallsFail|IdallocHttp.+"]
    equal: [job, namespace]
  - source_matchers: [alertname=~"IdallocEtcdAlarm|IdallocEtcdRefuses|IdallocEtcdCallsFail"]
    target_matchers: [alertname=~"IdallocCeilingNear|IdallocHeadsNotKept|IdallocGateClosed"]
    equal: [job, namespace]
  - source_matchers: [alertname="IdallocLedgerStopped"]
    target_matchers: [alertname=~"IdallocRequestsUnanswered|IdallocConsumerLag"]
    equal: [job, namespace]
  # Whatever pages has its own reason, and a budget burns because of it.
  - source_matchers: [severity="page", alertname=~"Idalloc.+", alertname!~"Idalloc.+Budget.+"]
    target_matchers: [alertname=~"Idalloc.+Budget.+"]
    equal: [job, namespace]
\`\`\`

${table(['alert', 'severity', 'after', 'it says'], ALERTS.map(row))}`,
    `## Dashboard

In Grafana, choose *Dashboards*, *New*, *Import*, upload \`ops/grafana/dashboard.json\`, then pick the data source and the job at its top.
Its rows lead from symptoms to causes, and each panel says what it shows.`,
  );
}
