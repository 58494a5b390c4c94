/**
 * Checks that the arrows between the rooms of src are enforced, and the linter's rules for rooms and for tests. The
 * files in canary.txt break each on purpose; each line names the rules that must reject it, or says that it is allowed.
 * Its lists of imports are of files of src, and of packages. `arrows` and `columns` are rules of ops/lint/arrows.ts;
 * for the linter's, the files are written to a temporary directory as if they were in src and test, with this
 * repository's configuration. The rejections must match the files exactly.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, posix } from 'node:path';
import { forbiddenLines, ROOMS, wideComments } from '../../ops/lint/arrows.ts';

const ROOT = join(import.meta.dirname, '../..');
const CANARY = join(import.meta.dirname, 'canary.txt');
const BIOME = join(ROOT, 'node_modules/.bin/biome');
/** Linting takes half a second; a linter that hangs must not hold up the check. */
const TIMEOUT_MS = 60_000;

/** The line and the rule of a rejection as one text, so that sets can be compared. */
type Rejection = string;

interface Report {
  readonly diagnostics: readonly {
    readonly category: string;
    readonly location?: { readonly path: string; readonly start?: { readonly line: number } };
  }[];
}

interface CanaryFile {
  /** From the root, as if it were there. */
  readonly path: string;
  readonly text: string;
}

function canaryFiles(): CanaryFile[] {
  const [, ...parts] = readFileSync(CANARY, 'utf8').split(/^=== /m);
  return parts.map((part) => {
    const [path = '', ...lines] = part.split('\n');
    return { path, text: lines.flatMap((line) => expanded(path, line)).join('\n') };
  });
}

/** A list of imports as one statement for each; any other line as it is. */
function expanded(path: string, line: string): readonly string[] {
  const [, not, names] = /^may (not )?import: (.*)$/.exec(line) ?? [];
  if (names === undefined) return [line];
  const verdict = not === undefined ? 'allowed' : 'rejected: arrows';
  return names.split(' ').map((name) => `import '${importedIn(path, name)}'; // ${verdict}`);
}

function importedIn(path: string, name: string): string {
  if (!name.endsWith('.ts')) return name;
  const from = posix.relative(posix.dirname(path), `src/${name}`);
  return from.startsWith('.') ? from : `./${from}`;
}

/** The rejections that the files expect: one for each line that names a rule. */
function expected(files: readonly CanaryFile[]): Set<Rejection> {
  const rejections = files.flatMap(({ path, text }) =>
    text.split('\n').flatMap((line, index) => {
      const rules = / \/\/ rejected: (.+)$/.exec(line)?.[1]?.split(', ') ?? [];
      return rules.map((rule) => `${path}:${index + 1} ${rule}`);
    }),
  );
  return new Set(rejections);
}

/** The rooms without a canary file. */
function roomsWithoutCanary(files: readonly CanaryFile[]): string[] {
  const places = new Set(files.flatMap(({ path }) => [path, dirname(path)]));
  return ROOMS.map(({ room }) => `src/${room}`).filter((room) => !places.has(room));
}

/** The imports of src that no row allows. */
function forbidden(files: readonly CanaryFile[]): Rejection[] {
  const sources = files.filter(({ path }) => path.startsWith('src/'));
  return sources.flatMap(({ path, text }) =>
    forbiddenLines(path.replace(/^src\//, ''), text).map((line) => `${path}:${line} arrows`),
  );
}

/** The comments that are too wide. */
function wide(files: readonly CanaryFile[]): Rejection[] {
  return files.flatMap(({ path, text }) => wideComments(text).map((line) => `${path}:${line} columns`));
}

/** The linter's rejections by the rules that the files name; other rules reject such code as well. */
function rejected(files: readonly CanaryFile[], rules: ReadonlySet<string>): Set<Rejection> {
  const place = mkdtempSync(join(tmpdir(), 'idalloc-arrows-'));
  try {
    copyFileSync(join(ROOT, 'biome.json'), join(place, 'biome.json'));
    cpSync(join(ROOT, 'ops/lint'), join(place, 'ops/lint'), { recursive: true });
    for (const { path, text } of files) {
      mkdirSync(dirname(join(place, path)), { recursive: true });
      writeFileSync(join(place, path), text);
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
