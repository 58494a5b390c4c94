import { existsSync } from 'node:fs';
import { run } from './run.ts';
import { which } from './toolchain.ts';

/** Takes one line of progress, without a line end. */
export type Log = (line: string) => void;

const APT_MS = 600_000;

/** Why this process may not install packages or start daemons here; undefined when it may. */
export function installObstacle(env: NodeJS.ProcessEnv): string | undefined {
  if (env.IDALLOC_NO_INSTALL === '1') return 'IDALLOC_NO_INSTALL=1 forbids it';
  if (process.platform !== 'linux') return 'this is not Linux';
  if (process.getuid?.() !== 0) return 'this is not root';
  return undefined;
}

/** Why this process may not install Debian packages here; undefined when it may. */
export function aptObstacle(env: NodeJS.ProcessEnv): string | undefined {
  const obstacle = installObstacle(env);
  if (obstacle !== undefined) return obstacle;
  return existsSync('/etc/debian_version') && which('apt-get', env) ? undefined : 'this is not Debian';
}

/**
 * Installs Debian packages; rejects if that fails. A package may be given as a regular expression for a whole name:
 * then it is the first that apt offers. `signal` ends the download, but never an installation: that would leave
 * packages half configured.
 */
export async function aptInstall(
  packages: readonly (string | RegExp)[],
  env: NodeJS.ProcessEnv,
  log: Log,
  signal?: AbortSignal,
): Promise<void> {
  const apt = (command: string, args: readonly string[], stop?: AbortSignal) =>
    run({
      command,
      args: ['-o', 'DPkg::Lock::Timeout=120', '-q', ...args],
      env: { ...env, DEBIAN_FRONTEND: 'noninteractive', NEEDRESTART_SUSPEND: '1' },
      purpose: `${command} ${args[0]}`,
      timeoutMs: APT_MS,
      signal: stop,
    });
  log('updating the package lists (apt-get update)');
  await apt('apt-get', ['update'], signal);
  const names = new Set<string>();
  for (const wanted of packages) {
    if (typeof wanted === 'string') names.add(wanted);
    else names.add(await offered(wanted, (args) => apt('apt-cache', args, signal)));
  }
  const list = [...names].join(' ');
  const install = ['install', '-y', '--no-install-recommends', ...names];
  log(`downloading with apt-get: ${list} (IDALLOC_NO_INSTALL=1 prevents this)`);
  await apt('apt-get', [...install, '--download-only'], signal);
  log(`installing with apt-get: ${list}`);
  await apt('apt-get', install);
}

/** The lowest name, with numbers compared as such, that matches a pattern. */
async function offered(pattern: RegExp, aptCache: (args: readonly string[]) => Promise<string>): Promise<string> {
  const found = await aptCache(['search', '--names-only', `^${pattern.source}$`]);
  const names = found.split('\n').flatMap((line) => line.split(' ')[0] || []);
  const [lowest] = names.sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  if (lowest === undefined) throw new Error(`apt offers no package ${pattern.source}`);
  return lowest;
}
