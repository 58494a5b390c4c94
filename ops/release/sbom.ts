// Prints the packages that are shipped with idalloc as a CycloneDX document. Usage: npm run --silent sbom >
// idalloc.cdx.json
import { ROOT } from '../dev/paths.ts';
import { run } from '../dev/run.ts';
import { readManifest } from './packages.ts';
import { idOf, readLockfile, shippedOf } from './shipped.ts';

const TIMEOUT_MS = 60_000;

interface Named {
  readonly name: string;
  readonly version: string;
}

/** A package in a CycloneDX document; npm writes more fields. */
interface BomComponent extends Named {
  readonly 'bom-ref': string;
}

/** A software bill of materials in CycloneDX. */
export interface Bom {
  readonly bomFormat: string;
  readonly metadata: { readonly component: BomComponent };
  readonly components: readonly BomComponent[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/**
 * The bill of one package: itself, the packages that it needs or contains, and what those need. `bom` has them all.
 *
 * @throws Error for a needed package that the document does not have, or has in several versions.
 */
export function bomOfPackage(bom: Bom, { name, version }: Named, needs: readonly string[]): Bom {
  const direct = needs.map((need) => refOf(bom, need));
  const reached = new Set(direct);
  for (const ref of reached) {
    for (const next of bom.dependencies.find((one) => one.ref === ref)?.dependsOn ?? []) reached.add(next);
  }
  const ref = `${name}@${version}`;
  const component = { 'bom-ref': ref, type: 'library', name, version, purl: `pkg:npm/${ref.replace(/^@/, '%40')}` };
  const { components, dependencies } = onlyWith(bom, (one) => reached.has(one));
  return {
    ...bom,
    metadata: { ...bom.metadata, component },
    components,
    dependencies: [{ ref, dependsOn: direct }, ...dependencies],
  };
}

/** The bill of the Helm chart: itself, and the image that it installs, which has a bill of its own. */
export function bomOfChart(bom: Bom, version: string): Bom {
  const component = (what: string, type: string) => ({
    'bom-ref': `${what}:idalloc@${version}`,
    type,
    name: 'idalloc',
    version,
  });
  const [chart, image] = [component('chart', 'application'), component('image', 'container')];
  return {
    ...bom,
    metadata: { ...bom.metadata, component: chart },
    components: [image],
    dependencies: [
      { ref: chart['bom-ref'], dependsOn: [image['bom-ref']] },
      { ref: image['bom-ref'], dependsOn: [] },
    ],
  };
}

/** The document with the package that it describes as one more component, so that another package can need it. */
export function withItself(bom: Bom): Bom {
  return { ...bom, components: [bom.metadata.component, ...bom.components] };
}

function refOf({ components }: Bom, name: string): string {
  const [found, another] = components.filter((component) => component.name === name);
  if (found === undefined || another !== undefined) {
    throw new Error(`the bill of materials has ${found === undefined ? 'no' : 'more than one'} version of ${name}`);
  }
  return found['bom-ref'];
}

/** The components that are wanted, and the dependencies among them. */
function onlyWith(bom: Bom, isKept: (ref: string) => boolean): Bom {
  return {
    ...bom,
    components: bom.components.filter((component) => isKept(component['bom-ref'])),
    dependencies: bom.dependencies
      .filter(({ ref }) => isKept(ref))
      .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter(isKept) })),
  };
}

/**
 * npm's document of the lockfile, reduced to the packages that are shipped. npm's own option also removes packages that
 * development and idalloc share.
 */
export async function readBom(): Promise<Bom> {
  const args = ['sbom', '--sbom-format', 'cyclonedx', '--package-lock-only', '--loglevel=error'];
  const text = await run({ command: 'npm', args, cwd: ROOT, purpose: 'npm sbom', timeoutMs: TIMEOUT_MS });
  const shipped = new Set(shippedOf(readLockfile()).map(idOf));
  return onlyWith(JSON.parse(text), (ref) => shipped.has(ref));
}

async function main(): Promise<void> {
  const root = readManifest();
  const bom = bomOfPackage(await readBom(), { name: 'idalloc', version: root.version }, Object.keys(root.dependencies));
  process.stdout.write(`${JSON.stringify(bom, undefined, 2)}\n`);
}

if (import.meta.main) await main();
