import { execFile } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { ALERTS, RECORDINGS, RULES_FILE } from '../../ops/prometheus/rules.ts';
import { Alertmanager, type Routing, requireAlertmanager } from '../support/alertmanager.ts';
import { blocksOf, readPage } from '../support/docs.ts';
import { requirePrometheus } from '../support/prometheus.ts';
import { CALM, RULE_CASES, type RuleCase } from '../support/rule-cases.ts';

const run = promisify(execFile);
const dir = mkdtempSync(join(tmpdir(), 'idalloc-rules-'));
const CALM_AT = ['0s', '5m', '30m', '1h', '2h'];

beforeEach(requirePrometheus);
afterAll(() => rmSync(dir, { recursive: true, force: true }));

function seriesOf(series: Readonly<Record<string, string>>): unknown[] {
  return Object.entries(series).map(([name, values]) => ({ series: name, values }));
}

/** What promtool expects: nothing at first, and then the alert with all its labels and annotations. */
function testOf({ alert, series, silentAt, firesAt, labels, summary }: RuleCase): unknown {
  const rule = ALERTS.find((one) => one.alert === alert);
  if (rule === undefined) throw new Error(`there is no alert ${alert}`);
  const fired = {
    exp_labels: { severity: rule.labels.severity, ...labels },
    exp_annotations: { ...rule.annotations, summary },
  };
  return {
    name: alert,
    interval: '30s',
    input_series: seriesOf(series),
    alert_rule_test: [
      ...(silentAt === undefined ? [] : [{ eval_time: silentAt, alertname: alert, exp_alerts: [] }]),
      { eval_time: firesAt, alertname: alert, exp_alerts: [fired] },
    ],
  };
}

/** Runs promtool's own tests; its report if one fails. */
async function failures(tests: readonly unknown[]): Promise<string> {
  const file = join(dir, 'rules.test.yml');
  writeFileSync(file, stringify({ rule_files: [RULES_FILE], evaluation_interval: '30s', tests }));
  return await run('promtool', ['test', 'rules', file]).then(
    () => '',
    ({ stdout, stderr }) => `${stdout}${stderr}`,
  );
}

test('promtool finds no fault in the rules', async () => {
  const { stdout } = await run('promtool', ['check', 'rules', '--lint=all', '--lint-fatal', RULES_FILE]);
  expect(stdout).toContain(`SUCCESS: ${ALERTS.length + RECORDINGS.length} rules found`);
});

test('promtool finds no fault in the configuration that the page shows, beside the rules', async () => {
  const [block] = blocksOf(readPage('docs/operations/monitoring.md')).filter(({ language }) => language === 'yaml');
  writeFileSync(join(dir, 'prometheus.yml'), block?.body.join('\n') ?? '');
  copyFileSync(RULES_FILE, join(dir, 'rules.yml'));
  const { stdout } = await run('promtool', ['check', 'config', join(dir, 'prometheus.yml')]);
  expect(stdout).toContain('SUCCESS: 1 rule files found');
});

test.for(RULE_CASES)('$alert is silent until its time is over, then fires with labels and text', async (one) => {
  expect(await failures([testOf(one)])).toBe('');
});

test('no alert fires for two workers that serve', async () => {
  const silent = CALM_AT.flatMap((at) =>
    ALERTS.map(({ alert }) => ({ eval_time: at, alertname: alert, exp_alerts: [] })),
  );
  expect(await failures([{ interval: '30s', input_series: seriesOf(CALM), alert_rule_test: silent }])).toBe('');
});

/**
 * What fires in an outage, and what of it a person is notified of: alerts of two workers, a and b, and those of their
 * deployment.
 */
const OUTAGES = {
  'no worker runs': {
    fires: 'NoWorkerServes RequestsUnanswered WorkersMissing WorkerDown/a WorkerDown/b ConsumerLag LatencyBudgetBurns',
    notified: 'NoWorkerServes',
  },
  'Kafka is away': {
    fires:
      'KafkaSilent/a KafkaSilent/b PartitionUnreached/a PartitionUnreached/b RequestsUnanswered HttpFails GateClosed/a FailureBudgetBurns FailureBudgetShrinks NotInGroup/b',
    notified: 'KafkaSilent/a KafkaSilent/b',
  },
  'Kafka is away for so long that the workers have left their group': {
    fires: 'KafkaSilent/a KafkaSilent/b NoWorkerServes RequestsUnanswered GateClosed/a GateClosed/b HttpFails HttpSlow',
    notified: 'KafkaSilent/a KafkaSilent/b NoWorkerServes',
  },
  'etcd is at its quota': {
    fires:
      'EtcdAlarm EtcdRefuses/a EtcdRefuses/b EtcdDatabaseLarge CeilingNear/a HeadsNotKept/a GateClosed/a HttpFails FailureBudgetBurns',
    notified: 'EtcdAlarm',
  },
  'etcd does not answer': {
    fires:
      'EtcdCallsFail/a EtcdCallsFail/b CeilingNear/a CeilingNear/b HeadsNotKept/a GateClosed/a HttpFails FailureBudgetBurns',
    notified: 'EtcdCallsFail/a EtcdCallsFail/b HttpFails',
  },
  'a ledger partition can not be read': {
    fires: 'LedgerStopped/a RequestsUnanswered ConsumerLag LatencyBudgetBurns',
    notified: 'LedgerStopped/a',
  },
  'most requests are refused': {
    fires: 'MostRequestsRefused RequestsRefused DeadLetters FailureBudgetBurns FailureBudgetShrinks',
    notified: 'MostRequestsRefused RequestsRefused DeadLetters',
  },
  'a budget shrinks, and nothing says why': { fires: 'FailureBudgetShrinks', notified: 'FailureBudgetShrinks' },
} as const;

/** The alerts of an outage, with the labels that its rule gives them. */
function alertsOf(job: string, fires: string): Record<string, string>[] {
  return fires.split(' ').map((fired) => {
    const [name = '', instance] = fired.split('/');
    const alertname = `Idalloc${name}`;
    const rule = ALERTS.find(({ alert }) => alert === alertname);
    if (rule === undefined) throw new Error(`there is no alert ${alertname}`);
    return { alertname, job, severity: rule.labels.severity, ...(instance === undefined ? {} : { instance }) };
  });
}

test('with the inhibitions that the page shows, one outage is one notification, which names what explains the rest', async (context) => {
  await requireAlertmanager(context);
  const [, block] = blocksOf(readPage('docs/operations/monitoring.md')).filter(({ language }) => language === 'yaml');
  await using alertmanager = await Alertmanager.start(parse(block?.body.join('\n') ?? '') as Routing);
  const outages = Object.entries(OUTAGES);
  await alertmanager.fire(outages.flatMap(([job, { fires }]) => alertsOf(job, fires)));
  await expect.poll(() => alertmanager.notifications.length).toBe(outages.length);
  const notified = alertmanager.notifications.map(({ groupLabels, alerts }) => {
    const names = alerts.map(({ labels: { alertname = '', instance } }) => {
      return [alertname.replace('Idalloc', ''), ...(instance === undefined ? [] : [instance])].join('/');
    });
    return [groupLabels.job, names.sort()];
  });
  const expected = outages.map(([job, one]) => [job, one.notified.split(' ').sort()]);
  expect(Object.fromEntries(notified)).toEqual(Object.fromEntries(expected));
});

test('promtool reports an alert that does not fire', async () => {
  const [first] = RULE_CASES;
  if (first === undefined) throw new Error('there are no cases');
  expect(await failures([testOf({ ...first, firesAt: '1m' })])).toContain(first.alert);
});
