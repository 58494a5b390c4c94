import { execFile } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { ALERTS, RECORDINGS, RULES_FILE } from '../../ops/prometheus/rules.ts';
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

test('promtool reports an alert that does not fire', async () => {
  const [first] = RULE_CASES;
  if (first === undefined) throw new Error('there are no cases');
  expect(await failures([testOf({ ...first, firesAt: '1m' })])).toContain(first.alert);
});
