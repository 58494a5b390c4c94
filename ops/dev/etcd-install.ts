import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type BuildOptions, cached, cacheName } from './cache.ts';
import { goCommand } from './go-toolchain.ts';
import { run } from './run.ts';
import { isAtLeast, type ToolName, versionOf, which } from './toolchain.ts';

const MODULE = join(import.meta.dirname, 'etcd');
const BUILD_TIMEOUT_MS = 15 * 60_000;
const OLDEST_ON_PATH = [3, 5] as const;

/**
 * The path where the program is, or will be. The pinned version, once built, is preferred, so that an older one never opens
 * its data; a recent etcd on the PATH saves the build.
 */
function plan(cache: string, env: NodeJS.ProcessEnv) {
  const goMod = join(MODULE, 'go.mod');
  const version = /go\.etcd\.io\/etcd\/server\/v3 v(\S+)/.exec(readFileSync(goMod, 'utf8'))?.[1];
  if (!version) throw new Error(`no version of go.etcd.io/etcd/server/v3 in ${goMod}`);
  const name = cacheName('etcd', version, [goMod, join(MODULE, 'go.sum')]);
  const built = join(cache, name, 'etcd');
  if (existsSync(built)) return { path: built, name, version, ready: true };
  const onPath = which('etcd', env);
  const found = onPath && versionOf(onPath, ['--version']);
  if (onPath && found && isAtLeast(found, OLDEST_ON_PATH)) return { path: onPath, name, version, ready: true };
  return { path: built, name, version, ready: false };
}

/** The tools that etcd needs on this machine: none once it is built, or when one on the PATH is used. */
export function etcdTools(cache: string, env: NodeJS.ProcessEnv): ToolName[] {
  return plan(cache, env).ready ? [] : ['go'];
}

/** Where etcd comes from, for people. */
export function etcdOrigin(cache: string, env: NodeJS.ProcessEnv): string {
  const { path, version, ready } = plan(cache, env);
  return ready ? `etcd from ${path}` : `etcd ${version} built by Go`;
}

/** The path of an etcd program, which is built from its Go module if it is missing. */
export async function installEtcd(env: NodeJS.ProcessEnv, options: Omit<BuildOptions, 'what'>): Promise<string> {
  const { path, ready } = plan(options.cache, env);
  return ready ? path : await buildEtcd(env, options);
}

/** The path of etcd as built from its Go module, statically linked. */
export async function buildEtcd(env: NodeJS.ProcessEnv, options: Omit<BuildOptions, 'what'>): Promise<string> {
  const { name, version } = plan(options.cache, env);
  const dir = await cached(name, { ...options, what: `etcd ${version} (built by Go)` }, async (into) => {
    const go = await goCommand(env, options);
    await run({
      command: go.command,
      args: [
        'build',
        '-trimpath',
        '-buildvcs=false',
        '-ldflags=-s -w',
        '-o',
        join(into, 'etcd'),
        'go.etcd.io/etcd/server/v3',
      ],
      purpose: 'the build of etcd by Go',
      timeoutMs: BUILD_TIMEOUT_MS,
      cwd: MODULE,
      env: { ...go.env, CGO_ENABLED: '0' },
      signal: options.signal,
    });
  });
  return join(dir, 'etcd');
}
