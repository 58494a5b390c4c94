import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { startChild, untilReady } from './child.ts';
import { ROOT } from './paths.ts';
import { run } from './run.ts';
import { which } from './toolchain.ts';

/** Takes one line of progress, without a line end. */
export type Log = (line: string) => void;

/** A container engine that answers, or why there is none. `stop` ends only what this process started. */
export type Engine = { readonly started: boolean; stop(): Promise<void> } | { readonly unavailable: string };

/** `code` is undefined if the program could not be started or was killed at its time limit. */
export interface Answer {
  readonly code: number | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

const OUTPUT_LIMIT = 1 << 20;
const ANSWER_MS = 10_000;
const APT_MS = 600_000;
const ENGINE_START_MS = 60_000;
const ENGINE_STOP_MS = 30_000;

/** Runs the docker program and returns the first MiB of each output; never rejects. */
export function docker(args: readonly string[], timeoutMs = ANSWER_MS): Promise<Answer> {
  return new Promise((resolve) => {
    const child = spawn('docker', args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
    });
    const output = { stdout: '', stderr: '' };
    const keep = (name: 'stdout' | 'stderr') => (chunk: string) => {
      if (output[name].length < OUTPUT_LIMIT) output[name] += chunk;
    };
    child.stdout.setEncoding('utf8').on('data', keep('stdout'));
    child.stderr.setEncoding('utf8').on('data', keep('stderr'));
    child.once('error', (error) => resolve({ code: undefined, stdout: '', stderr: error.message }));
    child.once('close', (code) => resolve({ code: code ?? undefined, ...output }));
  });
}

/** Why this process may not install packages or start daemons here; undefined when it may. */
function installObstacle(): string | undefined {
  if (process.env.IDALLOC_NO_INSTALL === '1') return 'IDALLOC_NO_INSTALL=1 forbids installing or starting one';
  if (process.platform !== 'linux') return 'start Docker, then try again';
  if (process.getuid?.() !== 0) return 'only root can install and start one; start Docker, then try again';
  if (process.env.DOCKER_HOST) return "DOCKER_HOST names an engine that this process can't install or start";
  return undefined;
}

/**
 * Installs those Debian packages whose program is missing.
 *
 * @param wanted program name → package name
 * @returns why it failed; undefined if every program is installed
 */
export async function ensurePrograms(wanted: Readonly<Record<string, string>>, log: Log): Promise<string | undefined> {
  const missing = Object.entries(wanted).filter(([program]) => !which(program, process.env));
  if (missing.length === 0) return undefined;
  const packages = [...new Set(missing.map(([, name]) => name))];
  const names = packages.join(' ');
  const obstacle = installObstacle();
  if (obstacle !== undefined) return `${names} missing; ${obstacle}`;
  if (!existsSync('/etc/debian_version') || !which('apt-get', process.env)) return `${names} missing; install by hand`;
  log(`installing with apt-get: ${names} (IDALLOC_NO_INSTALL=1 prevents this)`);
  const apt = (args: readonly string[]) =>
    run({
      command: 'apt-get',
      args: ['-o', 'DPkg::Lock::Timeout=120', '-qq', ...args],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', NEEDRESTART_SUSPEND: '1' },
      purpose: `apt-get ${args[0]}`,
      timeoutMs: APT_MS,
    });
  try {
    await apt(['update']);
    await apt(['install', '-y', '--no-install-recommends', ...packages]);
    return undefined;
  } catch (error) {
    return `${names} could not be installed: ${(error as Error).message}`;
  }
}

/** Whether an engine answers. */
async function answers(): Promise<boolean> {
  const { code, stdout } = await docker(['version', '--format', '{{.Server.Version}}']);
  return code === 0 && stdout.trim() !== '';
}

async function startEngine(log: Log): Promise<Engine> {
  const logFile = join(ROOT, '.idalloc/dockerd.log');
  log(`starting dockerd (log: ${logFile})`);
  try {
    const daemon = await startChild({ name: 'dockerd', logFile, command: 'dockerd', args: [] });
    await untilReady(daemon, answers, { timeoutMs: ENGINE_START_MS });
    const stop = async (): Promise<void> => {
      if (daemon.ended() !== undefined) return;
      await daemon.stop(ENGINE_STOP_MS);
      log(`stopped dockerd (process ${daemon.pid})`);
    };
    return { started: true, stop };
  } catch (error) {
    return { unavailable: (error as Error).message };
  }
}

/**
 * Finds a container engine. Without one, on Debian as root, it installs and starts one, and logs that.
 *
 * Never rejects. An engine that was already running is never changed or stopped.
 */
export async function ensureEngine(log: Log): Promise<Engine> {
  const found = { started: false, stop: async () => {} };
  if (await answers()) return found;
  const obstacle = installObstacle();
  if (obstacle !== undefined) return { unavailable: `no container engine answers; ${obstacle}` };
  const missing = await ensurePrograms(
    { docker: 'docker.io', dockerd: 'docker.io', iptables: 'iptables', debootstrap: 'debootstrap' },
    log,
  );
  if (missing !== undefined) return { unavailable: `no container engine answers; ${missing}` };
  // With a service manager, installing the package starts the daemon.
  if (await answers()) return found;
  return startEngine(log);
}

/** The command that starts Compose: the plugin, or Debian's older program, which is installed if both are missing. */
export async function ensureCompose(log: Log): Promise<readonly string[] | { readonly unavailable: string }> {
  const plugin = await docker(['compose', 'version']);
  if (plugin.code === 0) return ['docker', 'compose'];
  const missing = await ensurePrograms({ 'docker-compose': 'docker-compose' }, log);
  return missing === undefined ? ['docker-compose'] : { unavailable: missing };
}
