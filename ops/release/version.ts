// Sets the version wherever the sources name it. Usage: npm run release:version -- --help
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ROOT } from '../dev/paths.ts';
import { readManifest } from './packages.ts';
import { git, notesOf } from './release.ts';

const USAGE = `Sets the version wherever the sources name it, and commits that: for a release, or for what comes after one.

  npm run --silent release:version -- VERSION [options]

  VERSION      1.2.3: "Unreleased" in CHANGELOG.md becomes the section of this version
               1.3.0-dev: CHANGELOG.md begins "Unreleased", if it has none
  --date DATE  the date of the release (default: today)
  --dry-run    only show what would change
  --help

Exit codes: 0 set, 1 a step failed, 2 this version can't be set here.
`;
const EXIT_NOT_READY = 2;
const CHANGELOG = 'CHANGELOG.md';
/** Its table has a row for each minor version. */
const VERSIONS_PAGE = 'docs/reference/versions.md';

/** Where the sources name the version: what is before it and after it, which each file has once. */
const NAMED: readonly (readonly [file: string, pattern: RegExp])[] = [
  ['package.json', /^( {2}"version": ")[^"]+(")/gm],
  ['package-lock.json', /^( {2}"version": ")[^"]+(")/gm],
  ['package-lock.json', /^( {4}"": \{\n {6}"name": "idalloc",\n {6}"version": ")[^"]+(")/gm],
  ['docs/reference/asyncapi.yaml', /^(info:\n {2}title: idalloc\n {2}version: ).+()$/gm],
  ['ops/helm/idalloc/Chart.yaml', /^(version: ).+()$/gm],
  ['ops/helm/idalloc/Chart.yaml', /^(appVersion: ).+()$/gm],
];

/** The files that `withVersion` changes. */
export const FILES: readonly string[] = [...new Set(NAMED.map(([file]) => file)), CHANGELOG];

const isNext = (version: string): boolean => version.endsWith('-dev');

/** The parts of 1.2.3 or 1.2.3-dev by which versions are ordered; undefined for any other text. */
function partsOf(version: string): readonly number[] | undefined {
  const [, ...parts] = /^(\d+)\.(\d+)\.(\d+)(?:-dev)?$/.exec(version) ?? [];
  return parts.length === 0 ? undefined : [...parts.map(Number), isNext(version) ? 0 : 1];
}

/** Why `version` can't follow `present`; undefined if it can. */
export function obstacleTo(version: string, present: string): string | undefined {
  const [wanted, now] = [partsOf(version), partsOf(present)];
  if (wanted === undefined) return `'${version}' is no version: write 1.2.3, or 1.3.0-dev`;
  if (now === undefined) return `package.json has '${present}', which is no version`;
  const differing = wanted.findIndex((part, i) => part !== now[i]);
  return (wanted[differing] ?? 0) > (now[differing] ?? 0) ? undefined : `${version} is not above ${present}`;
}

function changelogWith(changelog: string, version: string, date: string): string {
  const open = /^## Unreleased$/m;
  if (isNext(version)) return open.test(changelog) ? changelog : changelog.replace(/^## /m, '## Unreleased\n\n## ');
  const closed = changelog.replace(open, `## ${version} - ${date}`);
  if ((notesOf(closed, version) ?? '').trim() === '') throw new Error(`${CHANGELOG} has nothing under "Unreleased"`);
  return closed;
}

/**
 * The texts of FILES with this version.
 *
 * @param read returns the text of a file by its path in the repository
 * @param date the day of the release, as 2026-01-31
 * @throws Error if a file does not name the version where it should, or the changelog has nothing to release.
 */
export function withVersion(
  read: (file: string) => string,
  version: string,
  date: string,
): Readonly<Record<string, string>> {
  const texts = Object.fromEntries(FILES.map((file) => [file, read(file)]));
  for (const [file, pattern] of NAMED) {
    const text = texts[file] ?? '';
    if ([...text.matchAll(pattern)].length !== 1) throw new Error(`${file} does not name the version once: ${pattern}`);
    texts[file] = text.replace(pattern, (_, before, after) => `${before}${version}${after}`);
  }
  return { ...texts, [CHANGELOG]: changelogWith(texts[CHANGELOG] ?? '', version, date) };
}

function show(line: string): void {
  process.stderr.write(`version: ${line}\n`);
}

const readFile = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

/** The lines of a file that change. */
function changesOf(file: string, text: string): readonly string[] {
  const [before, after] = [readFile(file).split('\n'), text.split('\n')];
  const gone = before.filter((line) => !after.includes(line)).map((line) => `${file}: -${line}`);
  return [...gone, ...after.filter((line) => !before.includes(line)).map((line) => `${file}: +${line}`)];
}

/** What is left to do after the version was set. */
function nextSteps(version: string): readonly string[] {
  if (!isNext(version)) return ['see that .ci/run passes on this commit, then: npm run release'];
  const minor = version.split('.').slice(0, 2).join('.');
  return readFile(VERSIONS_PAGE).includes(`\n| ${minor} |`) ? [] : [`${VERSIONS_PAGE} needs a row for ${minor}`];
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      date: { type: 'string', default: new Date().toISOString().slice(0, 10) },
      'dry-run': { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  const version = positionals.join(' ');
  const obstacle = obstacleTo(version, readManifest().version);
  const changed = values['dry-run'] ? '' : await git('status', '--porcelain');
  if (obstacle !== undefined) show(obstacle);
  if (changed !== '') show(`the checkout has changes that are not committed:\n${changed}`);
  if (obstacle !== undefined || changed !== '') return EXIT_NOT_READY;
  const texts = Object.entries(withVersion(readFile, version, values.date));
  for (const [file, text] of texts) for (const change of changesOf(file, text)) show(change);
  if (values['dry-run']) return 0;
  for (const [file, text] of texts) writeFileSync(join(ROOT, file), text);
  // The subject by which tests find the last release.
  await git(
    'commit',
    '--quiet',
    '--all',
    '--message',
    isNext(version) ? `ops: ${version} begins` : `release: ${version}`,
  );
  for (const step of nextSteps(version)) show(step);
  return 0;
}

if (import.meta.main) process.exitCode = await main();
