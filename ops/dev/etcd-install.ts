import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { BuildOptions } from './cache.ts';
import { buildGoProgram, type GoProgram, pinnedGoProgram } from './go-program.ts';
import { isAtLeast, type ToolName, versionOf, which } from './toolchain.ts';

const ETCD: GoProgram = {
  name: 'etcd',
  folder: 'etcd',
  module: 'go.etcd.io/etcd/server/v3',
  main: 'go.etcd.io/etcd/server/v3',
};
const OLDEST_ON_PATH = [3, 5] as const;

/**
 * The path where the program is, or will be. The pinned version, once built, is preferred, so that an older one never
 * opens its data; a recent etcd on the PATH saves the build.
 */
function plan(cache: string, env: NodeJS.ProcessEnv) {
  const { version, cacheName } = pinnedGoProgram(ETCD);
  const built = join(cache, cacheName, 'etcd');
  if (existsSync(built)) return { path: built, version, ready: true };
  const onPath = which('etcd', env);
  const found = onPath && versionOf(onPath, ['--version']);
  if (onPath && found && isAtLeast(found, OLDEST_ON_PATH)) return { path: onPath, version, ready: true };
  return { path: built, version, ready: false };
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
export function buildEtcd(env: NodeJS.ProcessEnv, options: Omit<BuildOptions, 'what'>): Promise<string> {
  return buildGoProgram(ETCD, env, options);
}
