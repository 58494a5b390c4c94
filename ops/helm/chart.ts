// Writes the chart's generated files, and packs the chart. Usage: npm run chart [-- DIRECTORY]
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { ROOT } from '../dev/paths.ts';
import { run } from '../dev/run.ts';
import { readManifest } from '../release/packages.ts';
import { GENERATED } from './generated.ts';

/** The chart's sources. */
export const CHART = join(ROOT, 'ops/helm/idalloc');

const PACK_MS = 60_000;
/**
 * What a checkout and its time would change, so that the same sources always give the same package; the time is npm's.
 */
const SAME = [
  ...['--sort=name', '--mtime=1985-10-26T08:15:00Z', '--mode=u=rwX,go=rX'],
  ...['--owner=0', '--group=0', '--numeric-owner'],
];

/**
 * Packs the chart into `outDir`, beside a directory with what is packed.
 *
 * @returns the path of the package.
 */
export async function packChart(outDir: string): Promise<string> {
  const dir = join(outDir, 'idalloc');
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(outDir, { recursive: true });
  // The values in ci are for tests.
  cpSync(CHART, dir, { recursive: true, filter: (path) => path !== join(CHART, 'ci') });
  const archive = join(outDir, `idalloc-${readManifest().version}.tgz`);
  const args = [...SAME, '-czf', archive, '-C', outDir, 'idalloc'];
  await run({ command: 'tar', args, purpose: 'packing the chart', timeoutMs: PACK_MS });
  return archive;
}

if (import.meta.main) {
  for (const [path, content] of GENERATED) writeFileSync(join(CHART, path), content);
  const archive = await packChart(resolve(process.argv[2] ?? join(ROOT, 'dist/chart')));
  process.stdout.write(`${archive}\n`);
}
