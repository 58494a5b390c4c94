import { spawn } from 'node:child_process';
import { accessSync, closeSync, constants, existsSync, mkdirSync, openSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

/** Takes one line of progress, without a line end. */
export type Log = (line: string) => void;

/** A container engine that answers, or the reason why there is none. `stop` ends only what this process started. */
export type Engine = { readonly started: boolean; stop(): Promise<void> } | { readonly unavailable: string };

export interface CommandOptions {
  readonly timeoutMs: number;
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** `code` is undefined when the program could not be started or was ended by its time limit. */
export interface CommandResult {
  readonly code: number | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

const ROOT = join(import.meta.dirname, '..', '..');
const OUTPUT_LIMIT = 1 << 20;
const ENGINE_START_MS = 60_000;
const ENGINE_STOP_MS = 30_000;

/** Runs a program to its end and keeps the first MiB of each output; never rejects. */
export function run(program: string, args: readonly string[], options: CommandOptions): Promise<CommandResult> {
  return new Promise((resolve) => {
    const child = spawn(program, args, {
      cwd: options.cwd,
      env: { ...process.env, ...options.env },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: options.timeoutMs,
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

/** Like `run`, but anything other than exit code 0 rejects with the end of what the program said. */
export async function runOrThrow(program: string, args: readonly string[], options: CommandOptions): Promise<string> {
  const result = await run(program, args, options);
  if (result.code === 0) return result.stdout;
  const said = `${result.stdout}\n${result.stderr}`.trim().split('\n').slice(-15).join('\n');
  const how = result.code === undefined ? `did not finish in ${options.timeoutMs} ms` : `exit code ${result.code}`;
  throw new Error(`${program} ${args.slice(0, 3).join(' ')}: ${how}\n${said}`);
}

/** Whether PATH holds an executable of this name. */
export function onPath(program: string): boolean {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** Why this process may not install packages or start daemons here; undefined when it may. */
function installObstacle(): string | undefined {
  if (process.env.IDALLOC_NO_INSTALL === '1') return 'IDALLOC_NO_INSTALL=1 forbids to install or start one';
  if (process.platform !== 'linux') return 'start Docker, then try again';
  if (process.getuid?.() !== 0) return 'only root can install and start one; start Docker, then try again';
  if (process.env.DOCKER_HOST) return 'DOCKER_HOST names an engine that this process can neither install nor start';
  return undefined;
}

/**
 * Installs those Debian packages whose program is missing.
 *
 * @param wanted program name → package name
 * @returns why it could not be done; undefined when every program is there
 */
export async function ensurePrograms(wanted: Readonly<Record<string, string>>, log: Log): Promise<string | undefined> {
  const packages = Object.entries(wanted).flatMap(([program, name]) => (onPath(program) ? [] : [name]));
  if (packages.length === 0) return undefined;
  const names = packages.join(' ');
  const obstacle = installObstacle();
  if (obstacle !== undefined) return `${names} missing; ${obstacle}`;
  if (!existsSync('/etc/debian_version') || !onPath('apt-get')) return `${names} missing; install by hand`;
  log(`installing with apt-get: ${names} (IDALLOC_NO_INSTALL=1 prevents this)`);
  const apt = { timeoutMs: 600_000, env: { DEBIAN_FRONTEND: 'noninteractive' } };
  const lock = ['-o', 'DPkg::Lock::Timeout=120', '-q'];
  try {
    await runOrThrow('apt-get', [...lock, 'update'], apt);
    await runOrThrow('apt-get', [...lock, 'install', '-y', '--no-install-recommends', ...packages], apt);
    return undefined;
  } catch (error) {
    return `${names} could not be installed: ${(error as Error).message}`;
  }
}

/** The version of the engine that answers, or undefined. */
async function engineVersion(): Promise<string | undefined> {
  const { code, stdout } = await run('docker', ['version', '--format', '{{.Server.Version}}'], { timeoutMs: 10_000 });
  return code === 0 && stdout.trim() !== '' ? stdout.trim() : undefined;
}

async function startEngine(log: Log): Promise<Engine> {
  const folder = join(ROOT, '.idalloc');
  const logFile = join(folder, 'dockerd.log');
  mkdirSync(folder, { recursive: true });
  log(`starting dockerd (its log: ${logFile})`);
  const out = openSync(logFile, 'w');
  // Detached: a Ctrl-C for the whole terminal must not end it before the containers are removed.
  const daemon = spawn('dockerd', [], { detached: true, stdio: ['ignore', out, out] });
  closeSync(out);
  const ended = new Promise<void>((resolve) => {
    daemon.once('exit', () => resolve());
    daemon.once('error', () => resolve());
  });
  daemon.unref();
  const over = () => daemon.pid === undefined || daemon.exitCode !== null || daemon.signalCode !== null;
  const stop = async (): Promise<void> => {
    if (over()) return;
    daemon.ref();
    daemon.kill('SIGTERM');
    await Promise.race([ended, delay(ENGINE_STOP_MS, undefined, { ref: false })]);
    if (over()) log('dockerd stopped');
    else log(`dockerd (process ${daemon.pid}) has not ended ${ENGINE_STOP_MS} ms after SIGTERM; left alone`);
  };
  const deadline = performance.now() + ENGINE_START_MS;
  while (performance.now() < deadline && !over()) {
    const version = await engineVersion();
    if (version !== undefined) {
      log(`engine ${version} answers`);
      return { started: true, stop };
    }
    await delay(250);
  }
  await stop();
  const tail = existsSync(logFile) ? readFileSync(logFile, 'utf8').trim().split('\n').slice(-5).join('\n') : '';
  return { unavailable: `dockerd did not come up in ${ENGINE_START_MS} ms:\n${tail}` };
}

/**
 * Finds a container engine; where there is none, on Debian as root, installs and starts one, saying so.
 *
 * Never rejects. An engine that was already there is used as it is and never stopped.
 */
export async function ensureEngine(log: Log): Promise<Engine> {
  const found = { started: false, stop: async () => {} };
  if ((await engineVersion()) !== undefined) return found;
  const obstacle = installObstacle();
  if (obstacle !== undefined) return { unavailable: `no container engine answers; ${obstacle}` };
  const missing = await ensurePrograms(
    { docker: 'docker.io', dockerd: 'docker.io', iptables: 'iptables', debootstrap: 'debootstrap' },
    log,
  );
  if (missing !== undefined) return { unavailable: `no container engine answers; ${missing}` };
  // Installing the package starts the daemon where there is a service manager.
  if ((await engineVersion()) !== undefined) return found;
  return startEngine(log);
}

/** The words that start Compose: the plugin, or Debian's older program, which is installed when there is neither. */
export async function ensureCompose(log: Log): Promise<readonly string[] | { readonly unavailable: string }> {
  const plugin = await run('docker', ['compose', 'version'], { timeoutMs: 10_000 });
  if (plugin.code === 0) return ['docker', 'compose'];
  const missing = await ensurePrograms({ 'docker-compose': 'docker-compose' }, log);
  return missing === undefined ? ['docker-compose'] : { unavailable: missing };
}
