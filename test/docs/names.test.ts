import { expect, test } from 'vitest';
import { FINDINGS } from '../../src/cli/audit/found.ts';
import { CLIENT_METRICS, LATENCY_HISTOGRAM } from '../../src/client/metric-exports.ts';
import { VARIABLES } from '../../src/config/variables.ts';
import { UNREADY_REASONS } from '../../src/core/gate.ts';
import { ERRORS } from '../../src/errors.ts';
import { createMetrics } from '../../src/metrics/metrics.ts';
import { inlineCode, PAGES, readPage } from '../support/docs.ts';

/**
 * Names in capitals that are neither settings nor error codes: of scripts, of Node, of the image's build, and codes
 * that the audit reports.
 */
const OTHERS = new Set([
  'CLOCK_', // of `CLOCK_*`, `CLOCK_…`
  'IDALLOC_API_PORT',
  'IDALLOC_CACHE_DIR',
  'IDALLOC_ETCD_PORT',
  'IDALLOC_KAFKA_PORT',
  'IDALLOC_MUTANT',
  'IDALLOC_NO_INSTALL',
  'IDALLOC_OPS_PORT',
  'IDALLOC_SEED',
  'IDALLOC_SERVERS',
  'IDALLOC_STROBE_MS',
  'IDALLOC_TEST_SERVERS',
  'KAFKA_HOME',
  'NODE_DISABLE_COMPILE_CACHE',
  'NODE_EXTRA_CA_CERTS',
  'NODE_IMAGE',
  'NO_COLOR',
  // Of OpenTelemetry's SDK
  'OTEL_', // of `OTEL_*`
  'OTEL_EXPORTER_OTLP_ENDPOINT',
  'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
  'OTEL_SERVICE_NAME',
  'OTEL_TRACES_EXPORTER',
  'OTEL_TRACES_SAMPLER',
]);
const KNOWN = new Set<string>([
  ...Object.keys(VARIABLES),
  ...Object.keys(VARIABLES).map((name) => `${name}_FILE`),
  ...Object.keys(ERRORS),
  ...UNREADY_REASONS,
  ...OTHERS,
  ...Object.keys(FINDINGS),
]);
/** All pages but the changelog, which describes earlier releases. */
const CURRENT = PAGES.filter((page) => page !== 'CHANGELOG.md');

const METRICS = new Set([
  ...[...(await createMetrics().render()).body.matchAll(/^# TYPE (idalloc_\w+)/gm)].map(([, name = '']) => name),
  ...CLIENT_METRICS.map(({ name }) => name),
  LATENCY_HISTOGRAM.name,
]);

test.for(CURRENT)('the variables and codes that %s names exist', (page) => {
  const names = inlineCode(readPage(page)).flatMap((text) => text.match(/\b[A-Z]+(?:_[A-Z0-9]*)+\b/g) ?? []);
  expect(names.filter((name) => !KNOWN.has(name))).toEqual([]);
});

test.for(CURRENT)('the metrics that %s names exist', (page) => {
  const names = inlineCode(readPage(page)).flatMap((text) => text.match(/\bidalloc_\w+(?!\w|\.py)/g) ?? []);
  expect(names.filter((name) => !METRICS.has(name))).toEqual([]);
});

test('the page of the client names every metric that the client exports', () => {
  const page = readPage('docs/how-to/client.md');
  for (const { name, labels } of [...CLIENT_METRICS, { name: LATENCY_HISTOGRAM.name, labels: [] }]) {
    expect(page).toContain(labels.length === 0 ? `\`${name}\`` : `\`${name}{${labels.join()}}\``);
  }
});

test('each of the other names is used by a page', () => {
  const all = CURRENT.flatMap((page) => inlineCode(readPage(page))).join('\n');
  expect([...OTHERS].filter((name) => !all.includes(name))).toEqual([]);
});
