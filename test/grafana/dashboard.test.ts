import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { DASHBOARD_FILE, renderDashboard } from '../../ops/grafana/dashboard.ts';
import { ROWS } from '../../ops/grafana/panels.ts';
import { ALERTS } from '../../ops/prometheus/rules.ts';
import { createMetrics } from '../../src/metrics/metrics.ts';
import { readPage } from '../support/docs.ts';

const METRICS = [...(await createMetrics().render()).body.matchAll(/^# TYPE (\w+)/gm)].map(([, name = '']) => name);
const QUERIES = ROWS.flatMap(({ panels }) => panels.flatMap(({ queries }) => queries.map(({ expr }) => expr)));
const named = (text: string) =>
  (text.match(/\b(idalloc|nodejs|process)_\w+/g) ?? []).map((name) => name.replace(/_(bucket|count|sum)$/, ''));

test('the file of the dashboard is current; else run `npm run dashboard`', () => {
  expect(readFileSync(DASHBOARD_FILE, 'utf8')).toBe(renderDashboard());
});

test('panels have different titles, a text, and queries', () => {
  const panels = ROWS.flatMap((row) => row.panels);
  expect(new Set(panels.map(({ title }) => title)).size).toBe(panels.length);
  expect(panels.filter(({ about, queries }) => !about.endsWith('.') || queries.length === 0)).toEqual([]);
});

test('the panels ask for metrics that a worker has, of the chosen jobs', () => {
  expect(QUERIES.flatMap(named).filter((name) => !METRICS.includes(name))).toEqual([]);
  expect(QUERIES.filter((expr) => !expr.includes('job=~"$job"'))).toEqual([]);
});

test('each metric of a worker is used: by a panel, an alert or the runbook', () => {
  const texts = [...QUERIES, ...ALERTS.map(({ expr }) => expr), readPage('docs/operations/runbook.md')];
  const used = new Set(texts.flatMap(named));
  expect(METRICS.filter((name) => name.startsWith('idalloc_') && !used.has(name))).toEqual([]);
});
