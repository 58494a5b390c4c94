import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { aptInstall, aptObstacle, installObstacle, type Log, which } from '../bare/toolchain.ts';
import { startChild, untilReady } from './child.ts';
import { ROOT } from './paths.ts';

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
const ENGINE_START_MS = 60_000;
const ENGINE_STOP_MS = 30_000;

/** Runs the docker program and returns the first MiB of each output; never rejects. The signal ends it. */
export function docker(args: readonly string[], timeoutMs = ANSWER_MS, signal?: AbortSignal): Promise<Answer> {
  return new Promise((resolve) => {
    const child = spawn('docker', args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
      ...(signal === undefined ? {} : { signal }),
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

/** Why this process may not install or start an engine here; undefined when it may. */
function engineObstacle(): string | undefined {
  if (process.env.DOCKER_HOST) return "DOCKER_HOST names an engine that this process can't install or start";
  const obstacle = installObstacle(process.env);
  return obstacle && `none is installed or started from here, because ${obstacle}`;
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
  const obstacle = aptObstacle(process.env);
  if (obstacle !== undefined) return `${names} missing, and not installed from here, because ${obstacle}`;
  try {
    await aptInstall(packages, process.env, log);
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
  const obstacle = engineObstacle();
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

/** An engine on this machine, and the user as whom a container writes files that belong to this process's user. */
export interface LocalEngine {
  readonly user: string | undefined;
}

/**
 * An engine that answers and shares files and ports with this machine, or why there is none. Installs and starts
 * nothing.
 */
export async function localEngine(signal?: AbortSignal): Promise<LocalEngine | { readonly unavailable: string }> {
  if (!which('docker', process.env)) return { unavailable: 'there is no docker program' };
  const ask = (...args: string[]) => docker(args, ANSWER_MS, signal);
  const [version, context, info] = await Promise.all([
    ask('version', '--format', '{{.Server.Version}}'),
    ask('context', 'inspect', '--format', '{{.Endpoints.docker.Host}}'),
    ask('info', '--format', '{{json .SecurityOptions}}'),
  ]);
  if (version.stderr.includes('permission denied')) return { unavailable: 'the container engine refuses this user' };
  if (version.code !== 0 || version.stdout.trim() === '') return { unavailable: 'no container engine answers' };
  const host = process.env.DOCKER_HOST || (context.code === 0 ? context.stdout.trim() : '');
  if (/^(tcp|ssh|https?):/.test(host)) return { unavailable: 'the container engine is on another machine' };
  // Without root rights the engine maps its root to this user, and other users to nobody.
  if (info.stdout.includes('rootless')) return { user: '0:0' };
  const [uid, gid] = [process.getuid?.(), process.getgid?.()];
  return { user: uid === undefined ? undefined : `${uid}:${gid}` };
}

/** The command that starts Compose: the plugin, or Debian's older program, which is installed if both are missing. */
export async function ensureCompose(log: Log): Promise<readonly string[] | { readonly unavailable: string }> {
  const plugin = await docker(['compose', 'version']);
  if (plugin.code === 0) return ['docker', 'compose'];
  const missing = await ensurePrograms({ 'docker-compose': 'docker-compose' }, log);
  return missing === undefined ? ['docker-compose'] : { unavailable: missing };
}
