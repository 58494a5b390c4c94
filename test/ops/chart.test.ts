import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempDisposableSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { ROOT } from '../../ops/dev/paths.ts';
import { CHART, packChart } from '../../ops/helm/chart.ts';
import { GENERATED } from '../../ops/helm/generated.ts';
import { readManifest } from '../../ops/release/packages.ts';
import { loadWorkerConfig } from '../../src/config/config.ts';

const read = (path: string) => readFileSync(join(CHART, path), 'utf8');
const DEFAULTS = parse(read('values.yaml'));
const CASES = readdirSync(join(CHART, 'ci'));
const REQUIRED = { KAFKA_BROKERS: 'kafka:9092', ETCD_ENDPOINTS: 'http://etcd:2379' };

/** What the schema of the values says of values that replace the defaults, key by key of the first level. */
function problemsOf(values: Readonly<Record<string, unknown>>): string[] {
  const ajv = new Ajv({ strict: false, allErrors: true });
  const valid = ajv.validate(JSON.parse(read('values.schema.json')), { ...DEFAULTS, ...values });
  return valid ? [] : (ajv.errors ?? []).map(({ instancePath, message }) => `${instancePath}: ${message}`);
}

describe('the chart', () => {
  test.for([...GENERATED])('%s is as the code makes it: npm run chart writes it', ([path, content]) => {
    expect(read(path)).toBe(content);
  });

  test('has the version of the worker', () => {
    const { version } = readManifest();
    expect(parse(read('Chart.yaml'))).toMatchObject({ version, appVersion: version });
  });

  test('has the logo of the site as its icon', () => {
    const [, base64 = ''] = parse(read('Chart.yaml')).icon.split('base64,');
    expect(Buffer.from(base64, 'base64').toString()).toBe(readFileSync(join(ROOT, 'ops/site/logo.svg'), 'utf8'));
  });

  test('has a README that explains each value at the first level, or those below it', () => {
    const rows = [...read('README.md').matchAll(/^\| ([\w.]+) \| \w+ \|.*\| (.*) \|$/gm)];
    expect(Object.keys(DEFAULTS).filter((key) => !rows.some(([, path = '']) => path.split('.')[0] === key))).toEqual(
      [],
    );
    expect(rows.filter(([, , meaning]) => meaning !== '').length).toBeGreaterThan(40);
  });

  test('its schema takes yes or no for a variable that is 0 or 1, and for no other', () => {
    expect(problemsOf({ config: { ...REQUIRED, KAFKA_TLS: true } })).toEqual([]);
    expect(problemsOf({ config: { ...REQUIRED, REQUEST_PARTITIONS: true } }).join()).toContain(
      'must be string,integer',
    );
  });

  test('has a default for each value that the schema knows, but for those of other charts', () => {
    const { properties } = JSON.parse(read('values.schema.json'));
    expect(Object.keys(properties).filter((key) => !(key in DEFAULTS))).toEqual(['global']);
  });

  test.for(CASES)('its schema accepts %s, and the worker its variables', (file) => {
    const values = parse(read(`ci/${file}`));
    expect(problemsOf(values)).toEqual([]);
    const env = Object.fromEntries(
      Object.entries(values.config).map(([name, value]) => [name, String(value === true ? 1 : value)]),
    );
    // Files and what they belong to are not here.
    const { KAFKA_SASL_MECHANISM: _, KAFKA_SASL_USERNAME: __, ETCD_USERNAME: ___, ...plain } = env;
    expect(loadWorkerConfig(plain).warnings.filter((warning) => warning.includes('unknown'))).toEqual([]);
  });

  test.for<[string, Record<string, unknown>]>([
    ['a value', { replica: 3 }],
    ['a variable', { config: { ...REQUIRED, KAFKA_BROKER: 'kafka:9092' } }],
    ['a variable that the chart sets', { config: { ...REQUIRED, INDEX_DIR: '/data' } }],
    ['a secret among the variables', { config: { ...REQUIRED, ETCD_PASSWORD: 'secret' } }],
    ['a file', { config: REQUIRED, files: { KAFKA_PASSWORD: { secret: 'kafka', key: 'password' } } }],
    ['a source of a file', { config: REQUIRED, files: { KAFKA_CA: { configmap: 'kafka', key: 'ca.crt' } } }],
    ['a switch', { config: REQUIRED, keda: { enable: true } }],
    ['a probe', { config: REQUIRED, probes: { startup: { failureTreshold: 5 } } }],
  ])('its schema rejects a wrong name of %s', ([, values]) => {
    expect(problemsOf(values).join()).toMatch(/additional properties/);
  });

  test('its schema demands brokers, etcd and a memory limit', () => {
    expect(problemsOf({ config: {} }).join()).toMatch(/KAFKA_BROKERS.*ETCD_ENDPOINTS/);
    expect(problemsOf({ config: REQUIRED, resources: { limits: { cpu: '1' } } }).join()).toContain('memory');
  });

  test('each value of a template exists', () => {
    const files = readdirSync(join(CHART, 'templates'), { recursive: true, encoding: 'utf8' });
    const templates = files.filter((file) => file.includes('.')).map((file) => read(`templates/${file}`));
    const paths = templates.flatMap((text) => [...text.matchAll(/\.Values((?:\.\w+)+)/g)].map(([, path = '']) => path));
    const missing = paths.filter((path) => {
      const [first = '', ...rest] = path.slice(1).split('.');
      const inConfig = first === 'config' || first === 'files';
      let value: unknown = DEFAULTS[first];
      if (!inConfig) for (const key of rest) value = (value as Record<string, unknown> | undefined)?.[key];
      return value === undefined;
    });
    expect(paths.length).toBeGreaterThan(50);
    expect(missing).toEqual([]);
  });

  test('is the same package whenever, by whom and from which checkout it is packed', async () => {
    using dir = mkdtempDisposableSync(join(tmpdir(), 'idalloc-chart-'));
    const args = ['--list', '--verbose', '--utc', '--file', await packChart(dir.path)];
    const lines = execFileSync('tar', args, { encoding: 'utf8' }).trim().split('\n');
    expect(lines.length).toBeGreaterThan(20);
    const same = /^(drwxr-xr-x|-rw-r--r--) 0\/0 +\d+ 1985-10-26 08:15 idalloc\//;
    expect(lines.filter((line) => !same.test(line))).toEqual([]);
  });

  test('the values of the tests are not in the chart that is packed', () => {
    expect(existsSync(join(CHART, 'ci'))).toBe(true);
    expect(read('.helmignore')).toBe('ci/\n');
  });
});
