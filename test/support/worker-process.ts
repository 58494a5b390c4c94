import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { COMPILE_CACHE } from '../../ops/dev/paths.ts';
import { withNumber } from './log-levels.ts';
import { Watchers } from './watchers.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
/** Stops the worker when the process of the tests is killed. */
const GUARD = fileURLToPath(new URL('../../ops/dev/guard.sh', import.meta.url));
/** What systemd and Kubernetes give it by the files of this repository. */
const STOP_TIMEOUT_MS = 60_000;
/** A worker returns the same rendering of its metrics to all requests within this time. */
const METRICS_SHARED_MS = 1_000;
/** A start waits up to 35 s for a ceiling, and up to the lease's TTL for the worker ID of a crashed owner. */
const READY_TIMEOUT_MS = 180_000;
/** For a hang only: an audit of a hundred thousand requests takes minutes on a busy machine. */
const CLI_TIMEOUT_MS = 600_000;

type Env = Readonly<Record<string, string>>;

/**
 * Only what every program needs, and the cache of compiled code: settings of the test runner's environment must not
 * reach a worker.
 */
function bareEnv(): Env {
  return { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE: COMPILE_CACHE };
}

/** A line of a worker's log, with the time at which the test read it, by its monotonic clock. */
export type LogLine = Readonly<Record<string, unknown>> & {
  readonly msg?: string;
  readonly level?: number;
  readonly seenMs: number;
};

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A real worker in a child process, whose log the test reads. */
export class WorkerProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #lines: LogLine[] = [];
  readonly #watchers = new Watchers();
  readonly #errors: string[] = [];
  #ended = false;
  /** When the next request for metrics is sure to get a new rendering. */
  #metricsAgainMs = 0;
  readonly indexDir: string;
  /** Whether the test sets the wall clock of the process. */
  readonly hasFakedClock: boolean;
  /** Resolves when the process has exited and all its output was read. */
  readonly exit: Promise<Exit>;

  /**
   * Starts the process with these variables and no others. Without INDEX_DIR it gets a temporary index directory.
   * `program`: an installed worker in place of that of the sources.
   */
  constructor(env: Env, program: readonly string[] = [process.execPath, MAIN, 'worker']) {
    this.indexDir = env.INDEX_DIR ?? mkdtempSync(join(tmpdir(), 'idalloc-index-'));
    this.hasFakedClock = env.FAKETIME_TIMESTAMP_FILE !== undefined;
    this.#child = spawn('/bin/sh', [GUARD, ...program], {
      env: {
        ...bareEnv(),
        OPS_HOST: '127.0.0.1',
        OPS_PORT: '0',
        API_HOST: '127.0.0.1',
        API_PORT: '0',
        ...env,
        INDEX_DIR: this.indexDir,
      },
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: true, // the guard kills its process group, which must not be ours
    });
    const { stdin, stdout, stderr } = this.#child;
    if (stdin === null || stdout === null || stderr === null)
      throw new TypeError('a child with piped stdio must have its streams');
    stdin.on('error', () => undefined); // the guard may have exited before it is told that the worker has
    createInterface({ input: stdout }).on('line', (line) => this.#take(line));
    createInterface({ input: stderr }).on('line', (line) => this.#errors.push(line));
    this.#child.once('exit', () => stdin.end('done\n'));
    this.exit = new Promise((resolve) => {
      this.#child.once('close', (code, signal) => {
        if (env.INDEX_DIR === undefined) rmSync(this.indexDir, { recursive: true, force: true });
        this.#ended = true;
        resolve({ code, signal });
        this.#watchers.changed();
      });
    });
  }

  get lines(): readonly LogLine[] {
    return this.#lines;
  }

  /** The output on stderr, for a test that expects the worker to refuse to start. */
  get errors(): string {
    return this.#errors.join('\n');
  }

  /** The first log line at index `from` or later for which `holds` is true; rejects at the timeout. */
  line(holds: (line: LogLine) => boolean, from = 0): Promise<LogLine> {
    return this.#watchers.wait({
      what: () => `a line of the worker's log; its last lines:\n${this.#lastLines()}`,
      look: () => {
        const found = this.#lines.slice(from).find(holds);
        if (found === undefined && this.#ended)
          throw new Error(`the worker exited before it logged the awaited line; its last lines:\n${this.#lastLines()}`);
        return found;
      },
      timeoutMs: READY_TIMEOUT_MS,
    });
  }

  /** The exit of the process; rejects at a timeout, so that the test can still stop the worker. */
  async ended(): Promise<Exit> {
    await this.#watchers.wait({
      what: () => `the worker's exit; its last lines:\n${this.#lastLines()}`,
      look: () => (this.#ended ? true : undefined),
    });
    return await this.exit;
  }

  ready(): Promise<LogLine> {
    return this.line(({ msg }) => msg === 'idalloc ready');
  }

  /** The last state of the gate in the log: 'open', the reason why it is closed, or undefined before the first. */
  gate(): unknown {
    const last = this.#lines.findLast(({ msg }) => typeof msg === 'string' && /^gate (open|closed|still)/.test(msg));
    return last?.msg === 'gate open' ? 'open' : last?.reason;
  }

  /** The partitions of the request topic that it was assigned when it last joined the group. */
  partitions(): readonly number[] {
    const joined = this.#lines.findLast(({ msg }) => msg === 'joined the request group');
    return (joined?.partitions ?? []) as readonly number[];
  }

  /** Resolves when the worker has exactly `count` partitions. */
  async hasPartitions(count: number): Promise<void> {
    await this.#watchers.wait({
      what: () => `${count} partitions; the worker has ${this.partitions()}`,
      look: () => (this.partitions().length === count ? true : undefined),
      timeoutMs: READY_TIMEOUT_MS,
    });
  }

  /** Requests a path of the listener for health and metrics. Metrics are never older than the call. */
  async ops(path: string): Promise<Response> {
    const url = await this.opsUrl();
    const isMetrics = path === '/metrics';
    if (isMetrics) await sleep(Math.max(0, this.#metricsAgainMs - performance.now()));
    const response = await fetch(`${url}${path}`);
    if (isMetrics) this.#metricsAgainMs = performance.now() + METRICS_SHARED_MS;
    return response;
  }

  /** The URL of the listener for health and metrics, without a path. */
  async opsUrl(): Promise<string> {
    const { port } = await this.line(({ msg }) => msg === 'health and metrics are served');
    return `http://127.0.0.1:${port}`;
  }

  /** The URL of the HTTP API, without a path. */
  async api(): Promise<string> {
    const { port } = await this.line(({ msg }) => msg === 'the HTTP API is listening');
    return `http://127.0.0.1:${port}`;
  }

  /** The value of a metric without labels, or of the series whose labels are given as they are printed. */
  async metric(name: string): Promise<number> {
    const response = await this.ops('/metrics');
    const line = (await response.text()).split('\n').find((text) => text.startsWith(`${name} `));
    if (line === undefined) throw new Error(`/metrics has no line for ${name}`);
    return Number(line.slice(name.length + 1));
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Stops the worker by SIGTERM, as an operator would; rejects when it does not exit in time. */
  async stop(): Promise<void> {
    if (this.#ended) return;
    this.kill('SIGCONT');
    this.kill('SIGTERM');
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      this.kill('SIGKILL');
    }, STOP_TIMEOUT_MS);
    await this.exit;
    clearTimeout(timer);
    if (late)
      throw new Error(
        `the worker did not exit within ${STOP_TIMEOUT_MS} ms of SIGTERM and was killed; its last lines:\n${this.#lastLines()}`,
      );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #take(text: string): void {
    this.#lines.push(parseLine(text));
    this.#watchers.changed();
  }

  #lastLines(): string {
    return [...this.#lines.slice(-15).map((line) => JSON.stringify(line)), ...this.#errors.slice(-15)].join('\n');
  }
}

function parseLine(text: string): LogLine {
  const seenMs = performance.now();
  try {
    return { ...withNumber(JSON.parse(text) as Readonly<Record<string, unknown>>), seenMs };
  } catch {
    return { msg: text, seenMs }; // a crash of the runtime prints plain text, which must be among the last lines
  }
}

interface CommandEnd {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command of idalloc in a child process until it exits. */
export function runIdalloc(args: readonly string[], env: Env): Promise<CommandEnd> {
  return startIdalloc(args, env).ended;
}

/** A command of idalloc in a child process, which the test observes while it runs. */
export interface RunningCommand {
  /** Resolves when the output on stderr matches; rejects when the command exits first. */
  printed(text: RegExp): Promise<void>;
  readonly ended: Promise<CommandEnd>;
}

export function startIdalloc(args: readonly string[], env: Env): RunningCommand {
  const watchers = new Watchers();
  let output = '';
  let over = false;
  const ended = new Promise<CommandEnd>((resolve, reject) => {
    const options = { env: { ...bareEnv(), ...env }, timeout: CLI_TIMEOUT_MS };
    const child = execFile(process.execPath, [MAIN, ...args], options, (error, stdout, stderr) => {
      over = true;
      watchers.changed();
      const code = error === null ? 0 : error.code;
      if (typeof code === 'number') resolve({ code, stdout, stderr });
      else reject(error);
    });
    child.stderr?.on('data', (text) => {
      output += text;
      watchers.changed();
    });
  });
  return {
    ended,
    async printed(text) {
      await watchers.wait({
        what: () => `${text} on stderr of idalloc ${args.join(' ')}, which printed: ${output}`,
        look: () => {
          if (text.test(output)) return true;
          if (over) throw new Error(`idalloc ${args.join(' ')} exited before it printed ${text}: ${output}`);
          return undefined;
        },
      });
    },
  };
}
