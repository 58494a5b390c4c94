import { execFileSync } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { run } from '../dev/run.ts';

/** A program that the servers need, the oldest version that works, and how to install it. */
interface Tool {
  readonly command: string;
  readonly purpose: string;
  readonly versionArgs: readonly string[];
  readonly oldest: readonly [major: number, minor: number];
  /** Debian's package, or a pattern of its name for where that has a version; see `aptInstall`. */
  readonly apt: string | RegExp;
  /** The package's name in an instruction for people. */
  readonly aptExample: string;
  readonly brew: string;
}

const TOOLS = {
  java: {
    command: 'java',
    purpose: 'runs Kafka',
    versionArgs: ['-version'],
    oldest: [17, 0],
    apt: /openjdk-(1[7-9]|[2-9][0-9])-jre-headless/,
    aptExample: 'openjdk-17-jre-headless',
    brew: 'openjdk',
  },
  mvn: {
    command: 'mvn',
    purpose: "downloads Kafka's jars",
    versionArgs: ['-v'],
    oldest: [3, 6],
    apt: 'maven',
    aptExample: 'maven',
    brew: 'maven',
  },
  go: {
    command: 'go',
    purpose: 'builds etcd',
    versionArgs: ['version'],
    // Older than the module of etcd wants is enough: it then downloads a recent one.
    oldest: [1, 16],
    apt: 'golang-go',
    aptExample: 'golang-go',
    brew: 'go',
  },
} satisfies Record<string, Tool>;

export type ToolName = keyof typeof TOOLS;

/** The absolute path of a program on the PATH. */
export function which(command: string, env: NodeJS.ProcessEnv): string | undefined {
  for (const dir of (env.PATH ?? '').split(delimiter)) {
    if (dir === '') continue;
    try {
      accessSync(join(dir, command), constants.X_OK);
      return join(dir, command);
    } catch {
      // not in this directory, or not executable: try the next one
    }
  }
  return undefined;
}

/** The first version in the output of a program: `17.0.15`, `3.8.7`, `go1.26`; undefined if there is none. */
export function parseVersion(text: string): readonly [number, number] | undefined {
  const found = /(?<![\d.])(\d+)(?:\.(\d+))?/.exec(stripVTControlCharacters(text));
  return found ? [Number(found[1]), Number(found[2] ?? 0)] : undefined;
}

/** True when version is `oldest` or later. */
export function isAtLeast(version: readonly [number, number], oldest: readonly [number, number]): boolean {
  return version[0] > oldest[0] || (version[0] === oldest[0] && version[1] >= oldest[1]);
}

/** The version that a program reports; undefined if it can't be run or prints none. */
export function versionOf(path: string, args: readonly string[]): readonly [number, number] | undefined {
  try {
    // java prints its version to standard error
    const output = execFileSync('/bin/sh', ['-c', '"$@" 2>&1', 'sh', path, ...args], { encoding: 'utf8' });
    return parseVersion(output);
  } catch {
    return undefined; // a launcher without its program, as macOS has for java, counts as missing
  }
}

/** A tool that is missing or too old, as a sentence, and Debian's package that has it. */
export interface ToolFault {
  readonly text: string;
  readonly apt: string | RegExp;
}

/** Those of the tools that are not installed, or too old. */
export function toolFaults(names: readonly ToolName[], env: NodeJS.ProcessEnv): ToolFault[] {
  return faultyTools(names, env).map(({ tool, text }) => ({ text, apt: tool.apt }));
}

function faultyTools(names: readonly ToolName[], env: NodeJS.ProcessEnv): { tool: Tool; text: string }[] {
  return [...new Set(names)].flatMap((name) => {
    const tool: Tool = TOOLS[name];
    const path = which(tool.command, env);
    const version = path && versionOf(path, tool.versionArgs);
    if (version && isAtLeast(version, tool.oldest)) return [];
    const state = version ? `is only ${version.join('.')}` : 'is missing';
    return [{ tool, text: `${tool.command} ${state}; ${tool.oldest.join('.')} or later ${tool.purpose}` }];
  });
}

/**
 * Checks that the named tools are installed and recent enough. Throws one error that names all that are not, why
 * nothing installs them (`obstacle`), and the command that does.
 */
export function requireTools(names: readonly ToolName[], env: NodeJS.ProcessEnv, obstacle?: string): void {
  const faulty = faultyTools(names, env);
  if (faulty.length === 0) return;
  const lines = [
    ...faulty.map(({ text }) => text),
    ...(obstacle === undefined ? [] : [`They are not installed from here, because ${obstacle}.`]),
    `Install with: ${installCommand(
      faulty.map(({ tool }) => tool),
      process.platform,
    )}`,
  ];
  throw new Error(lines.join('\n  '));
}

function installCommand(tools: readonly Tool[], platform: NodeJS.Platform): string {
  if (platform === 'darwin') return `brew install ${tools.map((tool) => tool.brew).join(' ')}`;
  return `apt-get update && apt-get install -y ${tools.map((tool) => tool.aptExample).join(' ')} (Debian)`;
}

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

interface InstallOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly log: Log;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Installs those of the tools that are missing or too old, with apt-get where this process may. Throws one error that
 * names the rest, the cause and the remedy.
 */
export async function ensureTools(names: readonly ToolName[], options: InstallOptions): Promise<void> {
  const { env, log, signal } = options;
  const faults = toolFaults(names, env);
  if (faults.length === 0) return;
  const obstacle = aptObstacle(env);
  if (obstacle !== undefined) return requireTools(names, env, obstacle);
  log(`missing: ${faults.map(({ text }) => text).join(', ')}`);
  try {
    await aptInstall(
      faults.map(({ apt }) => apt),
      env,
      log,
      signal,
    );
  } catch (error) {
    signal?.throwIfAborted();
    return requireTools(names, env, `apt-get failed: ${error instanceof Error ? error.message : error}`);
  }
  requireTools(names, env, 'apt-get installed them, but others come first on the PATH');
}
