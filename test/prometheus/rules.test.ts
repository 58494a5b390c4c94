import { expect, test } from 'vitest';
import { ALERTS, RECORDINGS } from '../../ops/prometheus/rules.ts';
import { createMetrics } from '../../src/metrics/metrics.ts';
import { anchorsOf, readPage } from '../support/docs.ts';
import { RULE_CASES } from '../support/rule-cases.ts';

const TYPES = (await createMetrics().render()).body.matchAll(/^# TYPE (\w+) (\w+)/gm);
/** The series that a worker has: of a histogram those of its buckets, its count and its sum. */
const SERIES = new Set(
  [...TYPES].flatMap(([, name = '', type]) =>
    type === 'histogram' ? ['bucket', 'count', 'sum'].map((end) => `${name}_${end}`) : [name],
  ),
);
/** Prometheus makes it for each target. */
const OF_PROMETHEUS = 'up';
/** Every process has it. */
const OF_PROCESSES = 'process_start_time_seconds';
const RECORDED = new Set(RECORDINGS.map(({ record }) => record));

test('names are different, and say of which system they are', () => {
  const names = ALERTS.map(({ alert }) => alert);
  expect(new Set(names).size).toBe(names.length);
  expect(names.filter((name) => !/^Idalloc[A-Z][A-Za-z]+$/.test(name))).toEqual([]);
});

test.for(ALERTS)('$alert has a severity, a sentence and an entry of the runbook', ({ labels, annotations }) => {
  expect(['page', 'ticket']).toContain(labels.severity);
  expect(annotations.summary).toMatch(/^["{A-Za-z].*\.$/);
  const [page = '', anchor = ''] = annotations.runbook_url.split('#');
  expect(anchorsOf(readPage(page))).toContain(anchor);
});

test.for([...ALERTS, ...RECORDINGS])('$alert$record asks for series that a worker has', ({ expr }) => {
  const named = expr.match(/\b(idalloc_\w+|idalloc:[\w:]+|up|process_\w+)\b/g) ?? [];
  expect(named.length).toBeGreaterThan(0);
  const known = [OF_PROMETHEUS, OF_PROCESSES];
  expect(named.filter((name) => !known.includes(name) && !RECORDED.has(name) && !SERIES.has(name))).toEqual([]);
});

test('each alert has a case in which it fires', () => {
  const cases = RULE_CASES.map(({ alert }) => alert);
  expect([...new Set(cases)]).toEqual(ALERTS.map(({ alert }) => alert));
});
