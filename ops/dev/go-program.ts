import { copyFileSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type BuildOptions, cached, cacheName } from './cache.ts';
import { goCommand } from './go-toolchain.ts';
import { run } from './run.ts';

const BUILD_TIMEOUT_MS = 30 * 60_000;
const DOWNLOAD_TIMEOUT_MS = 10 * 60_000;

/** A program that is built from a Go module, at the version that its go.mod pins. */
export interface GoProgram {
  readonly name: string;
  /** A folder beside this file: go.mod with the pinned version, and go.sum. */
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
  const goMod = join(import.meta.dirname, folder, 'go.mod');
  const version = readFileSync(goMod, 'utf8')
    .split('\n')
    .flatMap((line) => /^(?:require )?\s*(\S+) v(\S+)/.exec(line)?.slice(1, 3).join(' ') ?? [])
    .find((line) => line.startsWith(`${module} `))
    ?.slice(module.length + 1);
  if (version === undefined) throw new Error(`no version of ${module} in ${goMod}`);
  return { version, cacheName: cacheName(name, version, [goMod, join(import.meta.dirname, folder, 'go.sum')]) };
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
      cwd: join(import.meta.dirname, folder),
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
