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
address may send that port 50 requests a second, besides those for \`/healthz\` and \`/readyz\`. Give the workers of each request group
a scrape job with \`idalloc\` in its name: the rules and the dashboard tell groups apart by the label \`job\`.

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

Two thresholds are yours to choose: \`IdallocAnswersSlow\` fires above a second, \`IdallocConsumerLag\` above 10,000 requests.
\`IdallocNoWorkerServes\` asks whether any worker serves; if you have several jobs, copy it for each, with its name.

${table(['alert', 'severity', 'after', 'it says'], ALERTS.map(row))}`,
    `## Dashboard

In Grafana, choose *Dashboards*, *New*, *Import*, upload \`ops/grafana/dashboard.json\`, then pick the data source and the job at its top.
Its rows lead from symptoms to causes, and each panel says what it shows.`,
  );
}
