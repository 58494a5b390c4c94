// Prints the packages that are shipped with idalloc as a CycloneDX document. Usage: npm run sbom > idalloc.cdx.json
import { ROOT } from '../dev/paths.ts';
import { run } from '../dev/run.ts';
import { idOf, readLockfile, shippedOf } from './shipped.ts';

const TIMEOUT_MS = 60_000;

interface Bom {
  readonly bomFormat: string;
  readonly metadata: { readonly component: { readonly 'bom-ref': string } };
  readonly components: readonly { readonly 'bom-ref': string }[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/**
 * Removes the packages that only development needs. npm's own option also removes packages that development and idalloc
 * share.
 */
export function shippedBom(bom: Bom, shipped: ReadonlySet<string>): Bom {
  const isKept = (ref: string) => shipped.has(ref) || ref === bom.metadata.component['bom-ref'];
  return {
    ...bom,
    components: bom.components.filter((component) => isKept(component['bom-ref'])),
    dependencies: bom.dependencies
      .filter(({ ref }) => isKept(ref))
      .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter(isKept) })),
  };
}

/** npm's document of the lockfile, reduced to the packages that are shipped. */
export async function readBom(): Promise<Bom> {
  const args = ['sbom', '--sbom-format', 'cyclonedx', '--package-lock-only', '--loglevel=error'];
  const text = await run({ command: 'npm', args, cwd: ROOT, purpose: 'npm sbom', timeoutMs: TIMEOUT_MS });
  return shippedBom(JSON.parse(text), new Set(shippedOf(readLockfile()).map(idOf)));
}

if (import.meta.main) process.stdout.write(`${JSON.stringify(await readBom(), undefined, 2)}\n`);
