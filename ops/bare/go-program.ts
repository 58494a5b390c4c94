import { chmodSync, copyFileSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { run } from '../dev/run.ts';
import { type BuildOptions, cached, cacheName } from './cache.ts';
import { isAtLeast, parseVersion, versionOf, which } from './toolchain.ts';

const LOCKS = join(import.meta.dirname, '../../locks');
const BUILD_TIMEOUT_MS = 30 * 60_000;
const DOWNLOAD_TIMEOUT_MS = 10 * 60_000;

/** A program that is built from a Go module, at the version that its go.mod pins. */
export interface GoProgram {
  readonly name: string;
  /** A folder of locks: go.mod with the pinned version, and go.sum. */
  readonly folder: string;
  /** The module of the program, whose version is the program's. */
  readonly module: string;
  /** The package to build. */
  readonly main: string;
  /** The variable of the program that has its version with a v before it, where the program can't tell it otherwise. */
  readonly versionVariable?: string;
  /** Compiled quickly, for a program that does little. */
  readonly isQuick?: boolean;
}

/** Neither optimized nor with symbols of a debugger. */
const QUICK_FLAGS = '-gcflags=all=-N -l -dwarf=false';

/** The version that go.mod pins, and the name of the program's directory in the cache. */
export function pinnedGoProgram({ name, folder, module }: GoProgram): {
  readonly version: string;
  readonly cacheName: string;
} {
  const goMod = join(LOCKS, folder, 'go.mod');
  const version = readFileSync(goMod, 'utf8')
    .split('\n')
    .flatMap((line) => /^(?:require )?\s*(\S+) v(\S+)/.exec(line)?.slice(1, 3).join(' ') ?? [])
    .find((line) => line.startsWith(`${module} `))
    ?.slice(module.length + 1);
  if (version === undefined) throw new Error(`no version of ${module} in ${goMod}`);
  return { version, cacheName: cacheName(name, version, [goMod, join(LOCKS, folder, 'go.sum')]) };
}

/** The path of the program, statically linked; it is built if it is not in the cache. */
export async function buildGoProgram(
  program: GoProgram,
  env: NodeJS.ProcessEnv,
  options: Omit<BuildOptions, 'what'>,
): Promise<string> {
  const { name, folder, main, versionVariable, isQuick } = program;
  const { version, cacheName } = pinnedGoProgram(program);
  const flags = `-s -w${versionVariable === undefined ? '' : ` -X ${versionVariable}=v${version}`}`;
  const dir = await cached(cacheName, { ...options, what: `${name} ${version} (built by Go)` }, async (into) => {
    const go = await goCommand(env, options);
    await run({
      command: go.command,
      args: [
        ...['build', '-trimpath', '-buildvcs=false', ...(isQuick === true ? [QUICK_FLAGS] : [])],
        ...[`-ldflags=${flags}`, '-o', join(into, name), main],
      ],
      purpose: `the build of ${name} by Go`,
      timeoutMs: BUILD_TIMEOUT_MS,
      cwd: join(LOCKS, folder),
      env: { ...go.env, CGO_ENABLED: '0' },
      signal: options.signal,
    });
  });
  return join(dir, name);
}

/** A directory with these files of a module, which Go downloads and checks against the checksum database. */
export async function goModuleFiles(
  { module, version, files }: { readonly module: string; readonly version: string; readonly files: readonly string[] },
  env: NodeJS.ProcessEnv,
  options: Omit<BuildOptions, 'what'>,
): Promise<string> {
  const name = `${basename(module)}-${version}-files`;
  return await cached(name, { ...options, what: `${module} ${version}` }, async (into) => {
    const go = await goCommand(env, options);
    const printed = await run({
      command: go.command,
      args: ['mod', 'download', '-json', `${module}@v${version}`],
      purpose: `the download of ${module}`,
      timeoutMs: DOWNLOAD_TIMEOUT_MS,
      cwd: into,
      env: go.env,
      signal: options.signal,
    });
    const { Dir: dir } = JSON.parse(printed) as { readonly Dir: string };
    for (const file of files) copyFileSync(join(dir, file), join(into, basename(file)));
  });
}

const GO_MOD = join(LOCKS, 'etcd/go.mod');
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', ia32: '386' };

/** A Go that builds the modules of this checkout, and the environment that it needs. */
interface Go {
  readonly command: string;
  readonly env: NodeJS.ProcessEnv;
}

/**
 * The Go on the PATH; if it is older than the modules want, as Debian's is, it downloads a recent one once, as a module
 * that it checks against the checksum database. Go does so by itself from 1.21 on, unless GOTOOLCHAIN or the
 * distribution prevents it.
 */
export async function goCommand(env: NodeJS.ProcessEnv, options: Omit<BuildOptions, 'what'>): Promise<Go> {
  const found = which('go', env);
  if (found === undefined) throw new Error('go is missing');
  const wanted = /^go (\S+)$/m.exec(readFileSync(GO_MOD, 'utf8'))?.[1] ?? '';
  const oldest = parseVersion(wanted);
  if (oldest === undefined) throw new Error(`no version of Go in ${GO_MOD}`);
  const version = versionOf(found, ['version']);
  if (version && isAtLeast(version, oldest)) return { command: found, env };
  const platform = `${process.platform}-${ARCHITECTURES[process.arch] ?? process.arch}`;
  const module = `golang.org/toolchain@v0.0.1-go${wanted}.${platform}`;
  const what = `Go ${wanted} (downloaded by Go ${version?.join('.')})`;
  const dir = await cached(`go-${wanted}-${platform}`, { ...options, what }, async (into) => {
    await run({
      command: found,
      args: ['mod', 'download', module],
      cwd: into,
      env: { ...env, GOMODCACHE: into, GOFLAGS: '-modcacherw', GO111MODULE: 'on', GOWORK: 'off' },
      purpose: `the download of Go ${wanted}`,
      timeoutMs: DOWNLOAD_TIMEOUT_MS,
      signal: options.signal,
    });
    rmSync(join(into, 'cache'), { recursive: true });
    makeExecutable(join(into, module));
  });
  const root = join(dir, module);
  return { command: join(root, 'bin/go'), env: { ...env, GOROOT: root, GOTOOLCHAIN: 'local' } };
}

/** Files of a module are not executable. */
function makeExecutable(root: string): void {
  for (const name of ['bin', 'pkg/tool']) {
    const files = readdirSync(join(root, name), { recursive: true, withFileTypes: true });
    for (const file of files) if (file.isFile()) chmodSync(join(file.parentPath, file.name), 0o755);
  }
}
