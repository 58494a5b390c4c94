import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Watchers } from './watchers.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
/** Ends the worker when the tests' own process is killed. */
const GUARD = fileURLToPath(new URL('../../ops/dev/guard.sh', import.meta.url));
const STOP_TIMEOUT_MS = 30_000;
/** A worker gives the same rendering to all who ask within this time. */
const METRICS_SHARED_MS = 1_000;
/** A start waits up to 35 s for a ceiling, and for what a crashed owner left up to a lease's time. */
const READY_TIMEOUT_MS = 90_000;
const CLI_TIMEOUT_MS = 60_000;

type Env = Readonly<Record<string, string>>;

/** Only what every program needs: settings of the test runner's environment must not reach a worker. */
function bareEnv(): Env {
  return { PATH: process.env.PATH ?? '' };
}

/** A line of a worker's log, with the moment at which it came, by the monotonic clock of the test. */
export type LogLine = Readonly<Record<string, unknown>> & {
  readonly msg?: string;
  readonly level?: number;
  readonly seenMs: number;
};

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A real worker in a process of its own, followed by its log. */
export class WorkerProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #lines: LogLine[] = [];
  readonly #watchers = new Watchers();
  readonly #errors: string[] = [];
  #ended = false;
  /** When a look at the metrics can not be given what one before it was. */
  #metricsAgainMs = 0;
  readonly indexDir: string;
  /** Its wall clock is a test's to set. */
  readonly hasFakedClock: boolean;
  /** Resolves when the process has ended and all that it wrote was read. */
  readonly exit: Promise<Exit>;

  /** Starts at once, with these variables and no others. Without INDEX_DIR the index is its own, and goes with it. */
  constructor(env: Env) {
    this.indexDir = env.INDEX_DIR ?? mkdtempSync(join(tmpdir(), 'idalloc-index-'));
    this.hasFakedClock = env.FAKETIME_TIMESTAMP_FILE !== undefined;
    this.#child = spawn('/bin/sh', [GUARD, process.execPath, MAIN, 'worker'], {
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
      detached: true, // the guard ends a process group, which must not be ours
    });
    const { stdin, stdout, stderr } = this.#child;
    if (stdin === null || stdout === null || stderr === null) throw new TypeError('a piped child has its streams');
    stdin.on('error', () => undefined); // the guard may be gone before it is told to let go
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

  /** What went to stderr, for a test that expects a refusal. */
  get errors(): string {
    return this.#errors.join('\n');
  }

  /** The first line, at `from` in the log or later, that holds; rejects when it does not come. */
  line(holds: (line: LogLine) => boolean, from = 0): Promise<LogLine> {
    return this.#watchers.wait({
      what: () => `a line of the worker's log; its last words:\n${this.#lastWords()}`,
      look: () => {
        const found = this.#lines.slice(from).find(holds);
        if (found === undefined && this.#ended) throw new Error(`the worker ended without it:\n${this.#lastWords()}`);
        return found;
      },
      timeoutMs: READY_TIMEOUT_MS,
    });
  }

  /** How it ended; rejects when it goes on for longer than any end may take, so that the test can stop it. */
  async ended(): Promise<Exit> {
    await this.#watchers.wait({
      what: () => `the worker's end; its last words:\n${this.#lastWords()}`,
      look: () => (this.#ended ? true : undefined),
    });
    return await this.exit;
  }

  ready(): Promise<LogLine> {
    return this.line(({ msg }) => msg === 'idalloc ready');
  }

  /** The gate's last word so far: 'open', a reason, or undefined before there was one. */
  gate(): unknown {
    const last = this.#lines.findLast(({ msg }) => typeof msg === 'string' && /^gate (open|closed|still)/.test(msg));
    return last?.msg === 'gate open' ? 'open' : last?.reason;
  }

  /** The partitions of the request topic that it has had since it last joined the group. */
  partitions(): readonly number[] {
    const joined = this.#lines.findLast(({ msg }) => msg === 'joined the request group');
    return (joined?.partitions ?? []) as readonly number[];
  }

  /** Resolves when it has exactly so many partitions. */
  async hasPartitions(count: number): Promise<void> {
    await this.#watchers.wait({
      what: () => `${count} partitions; the worker has ${this.partitions()}`,
      look: () => (this.partitions().length === count ? true : undefined),
      timeoutMs: READY_TIMEOUT_MS,
    });
  }

  /** Asks the listener for health and metrics. Metrics are never older than the call. */
  async ops(path: string): Promise<Response> {
    const { port } = await this.line(({ msg }) => msg === 'health and metrics are served');
    const isMetrics = path === '/metrics';
    if (isMetrics) await sleep(Math.max(0, this.#metricsAgainMs - performance.now()));
    const response = await fetch(`http://127.0.0.1:${port}${path}`);
    if (isMetrics) this.#metricsAgainMs = performance.now() + METRICS_SHARED_MS;
    return response;
  }

  /** Where the HTTP API is, as an address without a path. */
  async api(): Promise<string> {
    const { port } = await this.line(({ msg }) => msg === 'the HTTP API is listening');
    return `http://127.0.0.1:${port}`;
  }

  /** The value of a metric without labels, or of the series whose labels are given as they are printed. */
  async metric(name: string): Promise<number> {
    const response = await this.ops('/metrics');
    const line = (await response.text()).split('\n').find((text) => text.startsWith(`${name} `));
    if (line === undefined) throw new Error(`no metric ${name}`);
    return Number(line.slice(name.length + 1));
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Ends the worker as an operator would, and fails the test when it does not end. */
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
    if (late) throw new Error(`the worker did not stop in ${STOP_TIMEOUT_MS} ms:\n${this.#lastWords()}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #take(text: string): void {
    this.#lines.push(parseLine(text));
    this.#watchers.changed();
  }

  #lastWords(): string {
    return [...this.#lines.slice(-15).map((line) => JSON.stringify(line)), ...this.#errors.slice(-15)].join('\n');
  }
}

function parseLine(text: string): LogLine {
  const seenMs = performance.now();
  try {
    return { ...(JSON.parse(text) as Readonly<Record<string, unknown>>), seenMs };
  } catch {
    return { msg: text, seenMs }; // a crash of the runtime prints plain text, which the last words must show
  }
}

interface CommandEnd {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command of idalloc to its end, in a process of its own. */
export function runIdalloc(args: readonly string[], env: Env): Promise<CommandEnd> {
  return startIdalloc(args, env).ended;
}

/** A command of idalloc in a process of its own that the test meets while it runs. */
export interface RunningCommand {
  /** Resolves once stderr holds such a text; rejects when the command ends without. */
  told(text: RegExp): Promise<void>;
  readonly ended: Promise<CommandEnd>;
}

export function startIdalloc(args: readonly string[], env: Env): RunningCommand {
  const watchers = new Watchers();
  let told = '';
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
      told += text;
      watchers.changed();
    });
  });
  return {
    ended,
    async told(text) {
      await watchers.wait({
        what: () => `${text} from ${args.join(' ')}, which told: ${told}`,
        look: () => {
          if (text.test(told)) return true;
          if (over) throw new Error(`the command ended without ${text}: ${told}`);
          return undefined;
        },
      });
    },
  };
}
