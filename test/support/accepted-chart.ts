import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../../ops/dev/paths.ts';
import { blocksOf } from './docs.ts';

const PAGE = 'docs/operations/kubernetes.md';
/**
 * All that decides whether Kubernetes' API server accepts the chart: what helm renders, both programs, and their test.
 */
const DECISIVE = [
  PAGE,
  'locks/helm',
  'locks/kubernetes',
  'ops/bare/kubernetes.ts',
  'ops/grafana/dashboard.json',
  'ops/helm',
  'ops/prometheus/rules.yml',
  'test/integration/chart-server.test.ts',
  'test/support/accepted-chart.ts',
  'test/support/chart-render.ts',
  'test/support/kubernetes-schemas.ts',
  'test/support/kubernetes-server.ts',
  'test/support/strimzi-definitions.ts',
];
const RECORD = join(ROOT, 'test/integration/accepted-chart.json');

function filesOf(path: string): string[] {
  if (!statSync(join(ROOT, path)).isDirectory()) return [path];
  return readdirSync(join(ROOT, path))
    .toSorted()
    .flatMap((name) => filesOf(`${path}/${name}`));
}

/** The files that decide, with their content. */
export function decisiveFiles(): ReadonlyMap<string, Buffer> {
  return new Map(DECISIVE.flatMap(filesOf).map((file) => [file, readFileSync(join(ROOT, file))]));
}

/** What of a file decides: of the page its blocks, and of the chart all but its version, which a release changes. */
function decisivePart(file: string, content: Buffer): Buffer | string {
  if (file === PAGE) return JSON.stringify(blocksOf(content.toString()).map(({ body }) => body));
  if (file === 'ops/helm/idalloc/Chart.yaml') return content.toString().replace(/^(version|appVersion): .*$/gm, '$1');
  return content;
}

/** The digest of the chart as it is now, and of what decides with it. */
export function digestOfChart(): string {
  const hash = createHash('sha256');
  for (const [file, content] of decisiveFiles()) {
    const part = decisivePart(file, content);
    hash.update(`${file} ${part.length}\n`).update(part);
  }
  return hash.digest('hex');
}

/** The digest of what the API server has accepted; undefined if nothing is recorded. */
export function acceptedDigest(): string | undefined {
  if (!existsSync(RECORD)) return undefined;
  return (JSON.parse(readFileSync(RECORD, 'utf8')) as { readonly sha256: string }).sha256;
}

/** Records that the API server accepted the chart with this digest. */
export function recordAccepted(sha256: string): void {
  writeFileSync(RECORD, `${JSON.stringify({ sha256 }, undefined, 2)}\n`);
}
