import { execFileSync } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';

/** A program that the servers need, the oldest version that works, and how to install it. */
interface Tool {
  readonly command: string;
  readonly purpose: string;
  readonly versionArgs: readonly string[];
  readonly oldest: readonly [major: number, minor: number];
  readonly apt: string;
  readonly brew: string;
}

const TOOLS = {
  java: {
    command: 'java',
    purpose: 'runs Kafka',
    versionArgs: ['-version'],
    oldest: [17, 0],
    apt: 'openjdk-17-jre-headless',
    brew: 'openjdk',
  },
  mvn: {
    command: 'mvn',
    purpose: "downloads Kafka's jars",
    versionArgs: ['-v'],
    oldest: [3, 6],
    apt: 'maven',
    brew: 'maven',
  },
  go: {
    command: 'go',
    purpose: 'builds etcd',
    versionArgs: ['version'],
    oldest: [1, 21],
    apt: 'golang-go',
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

/**
 * Checks that the named tools are installed and recent enough. Throws one error that names all that are not, with the
 * command that installs them.
 */
export function requireTools(names: readonly ToolName[], env: NodeJS.ProcessEnv): void {
  const faults: string[] = [];
  const missing: Tool[] = [];
  for (const name of new Set(names)) {
    const tool: Tool = TOOLS[name];
    const path = which(tool.command, env);
    const version = path && versionOf(path, tool.versionArgs);
    if (version && isAtLeast(version, tool.oldest)) continue;
    const state = version ? `is only ${version.join('.')}` : 'is missing';
    faults.push(`${tool.command} ${state}; ${tool.oldest.join('.')} or later ${tool.purpose}`);
    missing.push(tool);
  }
  if (missing.length > 0) {
    throw new Error(`${faults.join('\n  ')}\n  Install with: ${installCommand(missing, process.platform)}`);
  }
}

function installCommand(tools: readonly Tool[], platform: NodeJS.Platform): string {
  if (platform === 'darwin') return `brew install ${tools.map((tool) => tool.brew).join(' ')}`;
  const backports = tools.some((tool) => tool.command === 'go')
    ? '; Debian 12 has a Go that recent in backports only'
    : '';
  return `apt-get update && apt-get install -y ${tools.map((tool) => tool.apt).join(' ')} (Debian${backports})`;
}
