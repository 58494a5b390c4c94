// Builds a release of the checked-out commit. Usage: npm run release -- --help
import { createHash } from 'node:crypto';
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { docker } from '../dev/docker-engine.ts';
import { buildWorkerImage, IMAGES } from '../dev/images.ts';
import { ROOT } from '../dev/paths.ts';
import { run } from '../dev/run.ts';
import { packChart } from '../helm/chart.ts';
import { buildPackages, CONTENTS, type Packed, readManifest } from './packages.ts';
import { type Bom, bomOfChart, bomOfPackage, readBom, withItself } from './sbom.ts';

const USAGE = `Builds a release of the checked-out commit: four npm packages and the Helm chart, a bill of materials
(CycloneDX) for each, the worker's image, the notes from CHANGELOG.md, SHA256SUMS; then tags the commit. Publishes nothing.

  npm run --silent release -- [options]

  --out DIR    where to write the files (default: dist/release)
  --no-image   without the image
  --no-tag     without the tag
  --check      only check whether a release could be built
  --json       print what was built as JSON
  --help

Before: set the version (npm run release:version -- 1.2.3), and see that .ci/run passes on that commit.

Exit codes: 0 built, 1 a step failed, 2 the commit can't be released.
`;
const EXIT_NOT_READY = 2;
const GIT_MS = 30_000;
const PULL_MS = 120_000;

interface Options {
  readonly outDir: string;
  readonly withImage: boolean;
  readonly withTag: boolean;
}

/** What is to be released; `notes` is undefined if the changelog has none of this version. */
interface Planned {
  readonly version: string;
  readonly changelog: string;
  readonly notes: string | undefined;
}

/** What was built. */
interface Release {
  readonly version: string;
  readonly commit: string;
  readonly files: readonly { readonly name: string; readonly sha256: string }[];
  readonly image: { readonly name: string; readonly id: string } | undefined;
  readonly tag: string | undefined;
}

function show(line: string): void {
  process.stderr.write(`release: ${line}\n`);
}

/** Runs git in this checkout. Returns what it prints, without the end of the last line. */
export async function git(...args: readonly string[]): Promise<string> {
  const output = await run({ command: 'git', args, cwd: ROOT, purpose: `git ${args[0]}`, timeoutMs: GIT_MS });
  return output.trim();
}

/** The part of the changelog about a version, without its heading; undefined if no dated heading names it. */
export function notesOf(changelog: string, version: string): string | undefined {
  const [, ...sections] = changelog.split(/^## /m);
  const heading = `${version} - `;
  const section = sections.find(
    (one) => one.startsWith(heading) && /^\d{4}-\d\d-\d\d\n/.test(one.slice(heading.length)),
  );
  return section === undefined ? undefined : `${section.slice(section.indexOf('\n')).trim()}\n`;
}

/** Every reason why this commit can't be released. */
async function obstacles({ version, changelog, notes }: Planned, { withImage, withTag }: Options): Promise<string[]> {
  const found: string[] = [];
  const changed = await git('status', '--porcelain');
  if (changed !== '') found.push(`the checkout has changes that are not committed:\n${changed}`);
  if (notes === undefined) {
    found.push(`CHANGELOG.md has no heading "## ${version} - <date>"; the version comes from package.json`);
  }
  if (/^## Unreleased$/m.test(changelog)) found.push('CHANGELOG.md still has a section "Unreleased"');
  const locked = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')).version;
  if (locked !== version)
    found.push(`package-lock.json has version ${locked}, package.json ${version}: run npm install`);
  if (withTag && (await git('tag', '--list', `v${version}`)) !== '') {
    found.push(`the tag v${version} exists: set the next version in package.json, or use --no-tag`);
  }
  if (withImage && (await docker(['version', '--format', '{{.Server.Version}}'])).code !== 0) {
    found.push('no container engine answers: start Docker, or use --no-image');
  }
  return found;
}

/** The file name of the chart. Helm's own name for it is that of an npm package. */
const chartName = (version: string): string => `idalloc-chart-${version}.tgz`;

function writeBom(tarball: string, bom: Bom): void {
  writeFileSync(tarball.replace(/\.tgz$/, '.cdx.json'), `${JSON.stringify(bom, undefined, 2)}\n`);
}

/** A bill of materials for each package, in a file beside its tarball. */
function writeBoms(all: Bom, packed: readonly Packed[], version: string): void {
  const boms = new Map<string, Bom>();
  for (const { name, tarball, bundled, dependencies } of packed) {
    const [own] = dependencies.flatMap((dependency) => boms.get(dependency) ?? []);
    const bom = bomOfPackage(own === undefined ? all : withItself(own), { name, version }, [
      ...dependencies,
      ...bundled,
    ]);
    boms.set(name, bom);
    writeBom(tarball, bom);
  }
}

/** The base image by its digest; undefined if it was built on this machine, so that no registry has one. */
async function pinnedBase(): Promise<string | undefined> {
  const pulled = await docker(['pull', '--quiet', IMAGES.node], PULL_MS);
  if (pulled.code !== 0) show(`no registry has a newer ${IMAGES.node} for us: ${pulled.stderr.trim()}`);
  const { code, stdout } = await docker(['image', 'inspect', '--format', '{{json .RepoDigests}}', IMAGES.node]);
  const [digest] = code === 0 ? (JSON.parse(stdout) as readonly string[]) : [];
  if (digest === undefined) show(`the base image ${IMAGES.node} has no digest`);
  return digest;
}

async function buildImage(version: string, commit: string): Promise<Release['image']> {
  const name = `idalloc:${version}`;
  show(`building the image ${name}`);
  const base = await pinnedBase();
  const labels = {
    'org.opencontainers.image.title': 'idalloc',
    'org.opencontainers.image.version': version,
    'org.opencontainers.image.revision': commit,
    'org.opencontainers.image.licenses': readManifest().license,
    'org.opencontainers.image.base.name': IMAGES.node,
    ...(base === undefined ? {} : { 'org.opencontainers.image.base.digest': base.slice(base.indexOf('@') + 1) }),
  };
  await buildWorkerImage(name, { labels, ...(base === undefined ? {} : { args: { NODE_IMAGE: base } }) });
  const { stdout } = await docker(['image', 'inspect', '--format', '{{.Id}}', name]);
  return { name, id: stdout.trim() };
}

/** The checksums of all files, also in a file that `sha256sum --check` reads. */
function writeChecksums(outDir: string): Release['files'] {
  const names = readdirSync(outDir, { withFileTypes: true }).flatMap((entry) => (entry.isFile() ? [entry.name] : []));
  const files = names.sort().map((name) => {
    const sha256 = createHash('sha256')
      .update(readFileSync(join(outDir, name)))
      .digest('hex');
    return { name, sha256 };
  });
  writeFileSync(join(outDir, 'SHA256SUMS'), files.map(({ name, sha256 }) => `${sha256}  ${name}\n`).join(''));
  return files;
}

async function buildRelease(version: string, notes: string, options: Options): Promise<Release> {
  const { outDir, withImage, withTag } = options;
  const commit = await git('rev-parse', 'HEAD');
  const packed = await buildPackages(outDir, show);
  show('packing the chart');
  const chart = join(outDir, chartName(version));
  copyFileSync(await packChart(join(outDir, CONTENTS, 'chart')), chart);
  show('writing the bills of materials');
  const bom = await readBom();
  writeBoms(bom, packed, version);
  writeBom(chart, bomOfChart(bom, version));
  writeFileSync(join(outDir, 'NOTES.md'), notes);
  const image = withImage ? await buildImage(version, commit) : undefined;
  const files = writeChecksums(outDir);
  // The tag is last, so that it names only what could be built.
  const tag = withTag ? `v${version}` : undefined;
  if (tag !== undefined) await git('tag', '--annotate', '--message', `idalloc ${version}`, tag, commit);
  return { version, commit, files, image, tag };
}

/** The commands that publish what was built; none of them is run here. */
function nextSteps({ version, files, image, tag }: Release, outDir: string): string {
  const path = (name: string) => relative(ROOT, join(outDir, name));
  const chart = chartName(version);
  const packages = files.filter(({ name }) => name.endsWith('.tgz') && name !== chart);
  const steps = [
    ...packages.map(({ name }) => `npm publish ${path(name)}`),
    `helm push ${path(chart)} oci://REGISTRY`,
    ...(image === undefined
      ? []
      : [`docker tag ${image.name} REGISTRY/${image.name} && docker push REGISTRY/${image.name}`]),
    ...(tag === undefined ? [] : [`git push origin ${tag}`]),
  ];
  return steps.map((step) => `  ${step}\n`).join('');
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    allowNegative: true,
    options: {
      out: { type: 'string', default: join(ROOT, 'dist/release') },
      image: { type: 'boolean', default: true },
      tag: { type: 'boolean', default: true },
      check: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const options = { outDir: resolve(values.out), withImage: values.image, withTag: values.tag };
  const { version } = readManifest();
  const changelog = readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8');
  const notes = notesOf(changelog, version);
  const found = await obstacles({ version, changelog, notes }, options);
  for (const obstacle of found) show(obstacle);
  if (notes === undefined || found.length > 0) return EXIT_NOT_READY;
  if (values.check) {
    show(`${version} can be released`);
    return 0;
  }
  const release = await buildRelease(version, notes, options);
  if (values.json) process.stdout.write(`${JSON.stringify(release, undefined, 2)}\n`);
  else {
    process.stdout.write(
      `${version} is in ${relative(ROOT, options.outDir) || '.'}: ${listed(release)}\nTo publish it:\n`,
    );
    process.stdout.write(nextSteps(release, options.outDir));
  }
  return 0;
}

function listed({ files, image }: Release): string {
  return [...files.map(({ name }) => name), 'SHA256SUMS', ...(image ? [`image ${image.name}`] : [])].join(', ');
}

if (import.meta.main) process.exitCode = await main();
