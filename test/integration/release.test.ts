import { execFile } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { parse } from 'yaml';
import { ensureImages, IMAGES } from '../../ops/dev/images.ts';
import { notesOf } from '../../ops/release/release.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');
/** For a hang, which must not be mistaken for a busy machine. */
const TIMEOUT_MS = 600_000;
const { noEngine } = inject('servers');

/** A repository of its own with the files of this checkout, so that nothing is committed or tagged here. */
let copy: string;
let outDir: string;
let version: string;

const git = async (...args: readonly string[]) => (await run('git', args, { cwd: copy })).stdout.trim();
const release = (...args: readonly string[]) =>
  run(process.execPath, ['ops/release/release.ts', '--out', outDir, ...args], { cwd: copy, timeout: TIMEOUT_MS });

function edit(file: string, change: (text: string) => string): void {
  writeFileSync(join(copy, file), change(readFileSync(join(copy, file), 'utf8')));
}

beforeAll(async () => {
  const place = mkdtempSync(join(tmpdir(), 'idalloc-release-'));
  [copy, outDir] = [join(place, 'checkout'), join(place, 'out')];
  const { stdout } = await run('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: ROOT });
  for (const file of stdout.split('\0').filter((name) => name !== '' && existsSync(join(ROOT, name)))) {
    mkdirSync(dirname(join(copy, file)), { recursive: true });
    copyFileSync(join(ROOT, file), join(copy, file));
  }
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  ({ version } = JSON.parse(readFileSync(join(copy, 'package.json'), 'utf8')));
  edit('CHANGELOG.md', (text) =>
    text.replace(
      /^## (Unreleased|\d.*)$/m,
      `## ${version} - 2026-01-31\n\nNotes of this release.\n\n## 0.0.1 - 2025-01-31`,
    ),
  );
  await git('init', '--quiet');
  writeFileSync(join(copy, '.git/info/exclude'), 'node_modules\n');
  await git('config', 'user.name', 'a maintainer');
  await git('config', 'user.email', 'maintainer@localhost');
  await git('config', 'commit.gpgsign', 'false');
  await git('add', '--all');
  await git('commit', '--quiet', '--message', 'release');
});

afterAll(() => rmSync(dirname(copy), { recursive: true, force: true }));

test('a release has tarballs, the chart, bills of materials, notes, checksums that verify, and a tag', async () => {
  const { stdout } = await release('--no-image', '--json');
  const built = JSON.parse(stdout);
  const names = ['idalloc', 'idalloc-chart', 'idalloc-client', 'idalloc-nestjs', 'idalloc-testcontainers'].map(
    (name) => `${name}-${version}`,
  );
  const expected = [...names.flatMap((name) => [`${name}.cdx.json`, `${name}.tgz`]), 'NOTES.md'].sort();
  expect(built.files.map(({ name }: { name: string }) => name).toSorted()).toEqual(expected);
  expect(built).toMatchObject({ version, commit: await git('rev-parse', 'HEAD'), tag: `v${version}` });
  await run('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: outDir });
  expect(readFileSync(join(outDir, 'NOTES.md'), 'utf8')).toBe('Notes of this release.\n');
  expect(await git('rev-parse', `v${version}^{commit}`)).toBe(built.commit);

  const { stdout: chart } = await run('tar', [
    '-xzOf',
    join(outDir, `idalloc-chart-${version}.tgz`),
    'idalloc/Chart.yaml',
  ]);
  expect(chart).toContain(`\nversion: ${version}\n`);

  const componentsOf = (name: string) =>
    JSON.parse(readFileSync(join(outDir, `${name}-${version}.cdx.json`), 'utf8')).components.map(
      (component: { name: string }) => component.name,
    );
  const ofClient = componentsOf('idalloc-client');
  expect(ofClient).toEqual(expect.arrayContaining(['kafkajs', 'avsc', '@noble/ciphers', 'zstddec']));
  expect(ofClient).not.toContain('etcd3');
  expect(componentsOf('idalloc-testcontainers').toSorted()).toEqual(['@idalloc/client', ...ofClient].toSorted());
  expect(componentsOf('idalloc')).toContain('etcd3');
  expect(componentsOf('idalloc-nestjs')).toEqual([]); // its peers are the user's
  expect(componentsOf('idalloc-chart')).toEqual(['idalloc']); // the image
});

/** Stands for each program that needs an account: it notes what it is asked, and answers as that program does. */
const STUB = `#!/bin/sh
name=$(basename "$0")
echo "$name $*" >>"$CALLS"
case "$name $*" in
  "docker login "*|"docker load"|"helm registry login "*) cat >/dev/null ;;
  "docker image inspect "*) echo "$REGISTRY/idalloc@sha256:1111" ;;
  "docker run "*) echo "{}" ;;
  "helm push "*) echo "Digest: sha256:2222" ;;
esac
`;
const PROGRAMS = ['docker', 'helm', 'cosign', 'npm', 'gh'];

interface Step {
  readonly run?: string;
  readonly 'working-directory'?: string;
}

test('the steps of the workflow that publish do so with what was built, each program asked for what it is to do', async () => {
  const place = join(dirname(copy), 'publish');
  const bin = join(place, 'bin');
  mkdirSync(bin, { recursive: true });
  for (const program of PROGRAMS) writeFileSync(join(bin, program), STUB, { mode: 0o755 });
  symlinkSync(outDir, join(place, 'release'));
  writeFileSync(join(place, 'release-image.tar.gz'), gzipSync('an image'));
  const workflow = parse(readFileSync(join(ROOT, '.github/workflows/release.yml'), 'utf8'));
  const steps: readonly Step[] = workflow.jobs.publish.steps;
  const env = {
    PATH: `${bin}:${process.env.PATH}`,
    CALLS: join(place, 'calls'),
    VERSION: version,
    REGISTRY: 'registry.example/team',
    REGISTRY_USER: 'publisher',
    REGISTRY_PASSWORD: 'secret',
    GITHUB_REPOSITORY: 'team/idalloc',
  };
  for (const { run: script, 'working-directory': within = '.' } of steps) {
    if (script === undefined) continue;
    // As a runner does.
    await run('bash', ['-eo', 'pipefail', '-c', script], { cwd: join(place, within), env });
  }
  const image = `registry.example/team/idalloc`;
  const chart = `registry.example/team/charts/idalloc@sha256:2222`;
  const asked = readFileSync(env.CALLS, 'utf8').trim().split('\n');
  expect(asked.filter((call) => !/ (login|load|image inspect|run) ?/.test(call))).toEqual([
    `docker tag idalloc:${version} ${image}:${version}`,
    `docker push ${image}:${version}`,
    `cosign sign --yes ${image}@sha256:1111`,
    `cosign attest --yes --type cyclonedx --predicate image.cdx.json ${image}@sha256:1111`,
    `helm push release/idalloc-chart-${version}.tgz oci://registry.example/team/charts`,
    `cosign sign --yes ${chart}`,
    ...['idalloc-client', 'idalloc-nestjs', 'idalloc-testcontainers', 'idalloc'].map(
      (name) => `npm publish --provenance --access public ${name}-${version}.tgz`,
    ),
    expect.stringContaining(`gh release create v${version} --repo team/idalloc --notes-file NOTES.md idalloc-`),
  ]);
  expect(asked.join(' ')).not.toContain('secret');
});

test('the image of a release is labelled with its version and its commit', async (context) => {
  if (noEngine !== undefined && !process.env.CI) context.skip(`needs a container engine: ${noEngine}`);
  if (noEngine !== undefined) throw new Error(`CI is set, so the image must be built: ${noEngine}`);
  await ensureImages(['node'], (line) => process.stderr.write(`release test: ${line}\n`));
  const { stdout } = await release('--no-tag', '--json');
  const { image, commit } = JSON.parse(stdout);
  expect(image.name).toBe(`idalloc:${version}`);
  const format = '{{json .Config.Labels}}';
  const { stdout: labels } = await run('docker', ['image', 'inspect', '--format', format, image.id]);
  expect(JSON.parse(labels)).toMatchObject({
    'org.opencontainers.image.version': version,
    'org.opencontainers.image.revision': commit,
    'org.opencontainers.image.base.name': IMAGES.node,
  });
  const printed = await run('docker', ['run', '--rm', image.id, '--version']);
  expect(printed.stdout.trim()).toBe(version);
  await run('docker', ['image', 'rm', image.name]);
}, 900_000);

test('a commit that is not ready is refused with every reason, and nothing is written', async () => {
  rmSync(outDir, { recursive: true, force: true });
  await git('tag', '--force', `v${version}`);
  edit('CHANGELOG.md', (text) => text.replaceAll(`## ${version} - `, '## Unreleased\n\n## 99.0.0 - '));
  edit('package-lock.json', (text) => text.replace(`"version": "${version}"`, '"version": "98.0.0"'));
  const refused = await release('--no-image').catch((error: { code: number; stderr: string }) => error);
  expect(refused).toMatchObject({ code: 2 });
  for (const reason of [
    'changes that are not committed',
    `no heading "## ${version} - <date>"`,
    'still has a section "Unreleased"',
    `package-lock.json has version 98.0.0, package.json ${version}`,
    `the tag v${version} exists`,
  ]) {
    expect(refused.stderr).toContain(reason);
  }
  expect(existsSync(outDir)).toBe(false);
  await git('checkout', '--quiet', '.');
});

test('a directory with files of others is not emptied', async () => {
  rmSync(outDir, { recursive: true, force: true });
  mkdirSync(outDir);
  writeFileSync(join(outDir, 'precious'), '');
  await expect(release('--no-image', '--no-tag')).rejects.toThrow(/has files that are not from here/);
  expect(existsSync(join(outDir, 'precious'))).toBe(true);
});

test('a version that is set can be released as it is, and the next one begins "Unreleased"', async () => {
  edit('CHANGELOG.md', (text) => text.replace('\n## ', '\n## Unreleased\n\n- New.\n\n## '));
  await git('commit', '--quiet', '--all', '--message', 'new');
  const set = (...args: readonly string[]) =>
    run(process.execPath, ['ops/release/version.ts', ...args], { cwd: copy, timeout: TIMEOUT_MS });
  const { stderr: shown } = await set('98.0.0', '--date', '2026-02-01', '--dry-run');
  expect(shown).toContain('CHANGELOG.md: +## 98.0.0 - 2026-02-01\n');
  expect(await git('status', '--porcelain')).toBe('');
  await set('98.0.0', '--date', '2026-02-01');
  expect(await git('log', '-1', '--format=%s')).toBe('release: 98.0.0');
  expect((await release('--no-image', '--check')).stderr).toContain('98.0.0 can be released');
  await expect(set('98.0.0-dev')).rejects.toMatchObject({ code: 2 });
  await set('98.1.0-dev');
  await expect(release('--no-image', '--check')).rejects.toMatchObject({ code: 2 });
});

test.for([
  ['## 1.2.0 - 2026-01-31\n\nNew.\n\n## 1.1.0 - 2026-01-01\n\nOld.\n', 'New.\n'],
  ['## 1.2.0 - 2026-01-31\n\n### Added\n\n- one\n', '### Added\n\n- one\n'],
  ['## 1.2.0\n\nNo date.\n', undefined],
  ['## 1.2.01 - 2026-01-31\n\nAnother version.\n', undefined],
] as const)('the notes of 1.2.0 in %j are %j', ([changelog, notes]) => {
  expect(notesOf(`# Changelog\n\n${changelog}`, '1.2.0')).toBe(notes);
});
