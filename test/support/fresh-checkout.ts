import { type ChildProcess, execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { installEtcd } from '../../ops/bare/etcd.ts';
import { installKafka } from '../../ops/bare/kafka.ts';
import { cacheDir, ROOT } from '../../ops/dev/paths.ts';

/** For a hang, which must not be mistaken for a busy machine. */
const TIMEOUT_MS = 300_000;
const SERVING = 'Serving until Ctrl-C.';
const IS_ROOT = process.getuid?.() === 0;
/**
 * A network with nothing but a loopback address, where every port is free. Others than root need a user namespace for
 * it.
 */
const OWN_NETWORK = [...(IS_ROOT ? [] : ['--map-root-user']), '--net', '--', 'sh', '-c'];

/** What a shell has printed, and where it is then. */
export interface Pasted {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  readonly cwd: string;
}

/** Why no network of its own can be had here; undefined if it can. */
export function whyNoNetwork(): string | undefined {
  const { status, error, stderr } = spawnSync('unshare', [...OWN_NETWORK, 'ip link set lo up'], { encoding: 'utf8' });
  return status === 0 ? undefined : `no network of its own: ${error?.message ?? stderr.trim()}`;
}

/**
 * A copy of the files of this checkout, as a user has it after the clone, with terminals on a machine on which nothing
 * else listens. Its dependencies are installed; there is no registry.
 */
export class FreshCheckout implements AsyncDisposable {
  readonly #place = mkdtempSync(join(tmpdir(), 'idalloc-checkout-'));
  readonly dir = join(this.#place, 'idalloc');
  readonly #starts: ChildProcess[] = [];

  static async create(): Promise<FreshCheckout> {
    const install = { cache: cacheDir(process.env), log: () => undefined };
    await Promise.all([installKafka(process.env, install), installEtcd(process.env, install)]);
    const checkout = new FreshCheckout();
    const list = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
    const files = execFileSync('git', list, { cwd: ROOT, encoding: 'utf8' }).split('\0').filter(Boolean);
    for (const file of files) cpSync(join(ROOT, file), join(checkout.dir, file));
    symlinkSync(join(ROOT, 'node_modules'), join(checkout.dir, 'node_modules'));
    mkdirSync(join(checkout.#place, 'home'));
    return checkout;
  }

  /** `npm start` in a terminal of its own, when it serves; the result is what it printed. */
  async start(...options: readonly string[]): Promise<string> {
    const [first] = this.#starts;
    const start = ['exec npm start --', ...options].join(' ');
    const alone = ['unshare', ...OWN_NETWORK, `ip link set lo up && ${start}`] as const;
    const [command, ...args] = first ? this.#beside(first, start) : alone;
    const child = spawn(command, args, { cwd: this.dir, env: this.#env() });
    this.#starts.push(child);
    let printed = '';
    return new Promise((resolve, reject) => {
      const hear = (chunk: Buffer) => {
        printed += chunk;
        if (printed.includes(SERVING)) resolve(printed);
      };
      child.stdout.on('data', hear);
      child.stderr.on('data', hear);
      child.once('error', reject);
      child.once('exit', (code) => reject(new Error(`npm start exited with ${code}:\n${printed}`)));
    });
  }

  /** Stops what was started last, as Ctrl-C does. */
  async stop(): Promise<void> {
    const child = this.#starts.at(-1);
    if (child === undefined) return;
    const ended = new Promise((resolve) => child.once('close', resolve));
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGTERM');
      await ended;
    }
    this.#starts.pop();
  }

  /** Pastes text into a new shell, which ends at the first command that fails. */
  paste(text: string, cwd: string): Promise<Pasted> {
    const [first] = this.#starts;
    const place = join(this.#place, 'cwd');
    const script = `${text}\npwd >'${place}'`;
    const [command, ...args] = first ? this.#beside(first, script) : ['bash', '-e', '-c', script];
    return new Promise((resolve) => {
      const options = { cwd, env: this.#env(), timeout: TIMEOUT_MS };
      execFile(command, args, options, (error, stdout, stderr) => {
        const code = error === null ? 0 : Number(error.code ?? 1);
        resolve({ code, stdout, stderr, cwd: error === null ? readFileSync(place, 'utf8').trim() : cwd });
      });
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    while (this.#starts.length > 0) await this.stop();
    rmSync(this.#place, { recursive: true, force: true });
  }

  /** A shell in the network of a running `npm start`. */
  #beside(first: ChildProcess, script: string): [string, ...string[]] {
    const user = IS_ROOT ? [] : ['--user', '--preserve-credentials'];
    return ['nsenter', '--target', String(first.pid), '--net', ...user, '--', 'bash', '-e', '-c', script];
  }

  /** The environment of a shell in which nobody has set anything for idalloc; npm does not ask a registry. */
  #env(): NodeJS.ProcessEnv {
    const { PATH = '' } = process.env;
    return {
      PATH: PATH.split(delimiter)
        .filter((dir) => !dir.includes('node_modules'))
        .join(delimiter),
      HOME: join(this.#place, 'home'),
      IDALLOC_CACHE_DIR: cacheDir(process.env),
      IDALLOC_SERVERS: 'processes',
      IDALLOC_NO_INSTALL: '1',
      npm_config_offline: 'true',
      npm_config_audit: 'false',
      npm_config_update_notifier: 'false',
      npm_config_loglevel: 'error',
    };
  }
}
