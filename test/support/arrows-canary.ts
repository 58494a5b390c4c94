/**
 * Checks that the arrows between the rooms of src are enforced, and the linter's rules for rooms and for tests. The
 * files under canary/ break each on purpose; each line names the rules that must reject it, or says that it is allowed.
 * `arrows` and `columns` are rules of ops/lint/arrows.ts; for the linter's, the files are copied to a temporary
 * directory as if they were in src and test, with this repository's configuration. The rejections must match the files
 * exactly.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { forbiddenLines, ROOMS, wideComments } from '../../ops/lint/arrows.ts';

const ROOT = join(import.meta.dirname, '../..');
const CANARY = join(import.meta.dirname, 'canary');
const BIOME = join(ROOT, 'node_modules/.bin/biome');
/** Linting takes half a second; a linter that hangs must not hold up the check. */
const TIMEOUT_MS = 60_000;
const SUFFIX = '.txt';

/** The line and the rule of a rejection as one text, so that sets can be compared. */
type Rejection = string;

interface Report {
  readonly diagnostics: readonly {
    readonly category: string;
    readonly location?: { readonly path: string; readonly start?: { readonly line: number } };
  }[];
}

function canaryFiles(): string[] {
  return readdirSync(CANARY, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith(SUFFIX));
}

/** The rejections that the files expect: one for each line that names a rule. */
function expected(files: readonly string[]): Set<Rejection> {
  const rejections = files.flatMap((file) =>
    readFileSync(join(CANARY, file), 'utf8')
      .split('\n')
      .flatMap((line, index) => {
        const rules = / \/\/ rejected: (.+)$/.exec(line)?.[1]?.split(', ') ?? [];
        return rules.map((rule) => `${file.slice(0, -SUFFIX.length)}:${index + 1} ${rule}`);
      }),
  );
  return new Set(rejections);
}

/** The rooms without a canary file. */
function roomsWithoutCanary(files: readonly string[]): string[] {
  const folders = new Set(files.map((file) => dirname(file)));
  return ROOMS.map(({ room }) => `src/${room}`).filter((room) => !folders.has(room) && !files.includes(room + SUFFIX));
}

const inSource = (file: string) => file.startsWith('src/');

/** The imports of src that no row allows. */
function forbidden(files: readonly string[]): Rejection[] {
  return files.filter(inSource).flatMap((file) => {
    const path = file.slice(0, -SUFFIX.length);
    const lines = forbiddenLines(path.replace(/^src\//, ''), readFileSync(join(CANARY, file), 'utf8'));
    return lines.map((line) => `${path}:${line} arrows`);
  });
}

/** The comments that are too wide. */
function wide(files: readonly string[]): Rejection[] {
  return files.flatMap((file) => {
    const lines = wideComments(readFileSync(join(CANARY, file), 'utf8'));
    return lines.map((line) => `${file.slice(0, -SUFFIX.length)}:${line} columns`);
  });
}

/** The linter's rejections by the rules that the files name; other rules reject such code as well. */
function rejected(files: readonly string[], rules: ReadonlySet<string>): Set<Rejection> {
  const place = mkdtempSync(join(tmpdir(), 'idalloc-arrows-'));
  try {
    copyFileSync(join(ROOT, 'biome.json'), join(place, 'biome.json'));
    cpSync(join(ROOT, 'ops/lint'), join(place, 'ops/lint'), { recursive: true });
    for (const file of files) {
      const target = join(place, file.slice(0, -SUFFIX.length));
      mkdirSync(dirname(target), { recursive: true });
      copyFileSync(join(CANARY, file), target);
    }
    const args = ['lint', '--reporter=json', '--max-diagnostics=none', '--vcs-enabled=false', 'src', 'test'];
    const { stdout, stderr, error } = spawnSync(BIOME, args, { cwd: place, encoding: 'utf8', timeout: TIMEOUT_MS });
    if (error !== undefined || !stdout.startsWith('{'))
      throw new Error(`the linter did not answer: ${error ?? stderr}`);
    const { diagnostics } = JSON.parse(stdout) as Report;
    const rejections = diagnostics.map(({ category, location }) => {
      return { rule: category.replace(/^lint\//, ''), at: `${location?.path}:${location?.start?.line}` };
    });
    return new Set(rejections.filter(({ rule }) => rules.has(rule)).map(({ rule, at }) => `${at} ${rule}`));
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}

const files = canaryFiles();
const wanted = expected(files);
const rules = new Set([...wanted].map((rejection) => rejection.slice(rejection.indexOf(' ') + 1)));
const found = new Set([...forbidden(files), ...wide(files), ...rejected(files, rules)]);
const faults = [
  ...[...wanted]
    .filter((rejection) => !found.has(rejection))
    .map((rejection) => `passed, but must be rejected: ${rejection}`),
  ...[...found]
    .filter((rejection) => !wanted.has(rejection))
    .map((rejection) => `rejected, but is allowed: ${rejection}`),
];
faults.push(...roomsWithoutCanary(files).map((room) => `there is no canary file for ${room}`));
for (const fault of faults) process.stderr.write(`${fault}\n`);
if (faults.length === 0) process.stdout.write(`canary: ${wanted.size} forbidden lines rejected\n`);
process.exitCode = faults.length === 0 ? 0 : 1;
