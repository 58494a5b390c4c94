import { chmodSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { type BuildOptions, cached } from './cache.ts';
import { run } from './run.ts';
import { isAtLeast, parseVersion, versionOf, which } from './toolchain.ts';

const GO_MOD = join(import.meta.dirname, 'etcd/go.mod');
const DOWNLOAD_TIMEOUT_MS = 10 * 60_000;
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
