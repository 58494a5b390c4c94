import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const STOP_TIMEOUT_MS = 30_000;

/** A line of a worker's log. */
export type LogLine = Readonly<Record<string, unknown>> & { readonly msg?: string };

/** A real worker in a process of its own, followed by its log. */
export class WorkerProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #lines: LogLine[] = [];
  readonly #watchers = new Set<() => void>();
  readonly #errors: string[] = [];
  readonly exit: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;

  constructor(env: Readonly<Record<string, string>>) {
    const indexDir = env.INDEX_DIR ?? mkdtempSync(join(tmpdir(), 'idalloc-index-'));
    this.#child = spawn(process.execPath, [MAIN, 'worker'], {
      env: { ...process.env, OPS_HOST: '127.0.0.1', OPS_PORT: '0', ...env, INDEX_DIR: indexDir },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const { stdout, stderr } = this.#child;
    if (stdout === null || stderr === null) throw new TypeError('a piped child has both streams');
    createInterface({ input: stdout }).on('line', (line) => this.#take(line));
    createInterface({ input: stderr }).on('line', (line) => this.#errors.push(line));
    this.exit = new Promise((resolve) => {
      this.#child.once('exit', (code, signal) => {
        if (env.INDEX_DIR === undefined) rmSync(indexDir, { recursive: true, force: true });
        resolve({ code, signal });
        for (const watch of [...this.#watchers]) watch();
      });
    });
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error('the worker did not start');
    return this.#child.pid;
  }

  get lines(): readonly LogLine[] {
    return this.#lines;
  }

  /** What went to stderr, for a test that expects a refusal. */
  get errors(): string {
    return this.#errors.join('\n');
  }

  /** The first line, from the beginning of the log, that holds; rejects when the worker ends without it. */
  line(holds: (line: LogLine) => boolean): Promise<LogLine> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const found = this.#lines.find(holds);
        if (found === undefined && this.#child.exitCode === null && this.#child.signalCode === null) return;
        this.#watchers.delete(look);
        if (found !== undefined) resolve(found);
        else reject(new Error(`the worker ended without the line; its last words:\n${this.#lastWords()}`));
      };
      this.#watchers.add(look);
      look();
    });
  }

  ready(): Promise<LogLine> {
    return this.line(({ msg }) => msg === 'idalloc ready');
  }

  /** The port of health and metrics, as its log tells it. */
  async opsPort(): Promise<number> {
    const line = await this.line(({ msg }) => msg === 'health and metrics are served');
    return Number(line.port);
  }

  /** The value of a metric without labels, or of the series whose labels are given as they are printed. */
  async metric(name: string): Promise<number> {
    const response = await fetch(`http://127.0.0.1:${await this.opsPort()}/metrics`);
    const line = (await response.text()).split('\n').find((text) => text.startsWith(`${name} `));
    if (line === undefined) throw new Error(`no metric ${name}`);
    return Number(line.slice(name.length + 1));
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Ends the worker as an operator would, and fails the test when it does not end. */
  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.kill('SIGCONT');
    this.kill('SIGTERM');
    const late = setTimeout(() => this.kill('SIGKILL'), STOP_TIMEOUT_MS);
    const { signal } = await this.exit;
    clearTimeout(late);
    if (signal === 'SIGKILL')
      throw new Error(`the worker did not stop in ${STOP_TIMEOUT_MS} ms:\n${this.#lastWords()}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #take(text: string): void {
    this.#lines.push(parseLine(text));
    for (const watch of [...this.#watchers]) watch();
  }

  #lastWords(): string {
    return [...this.#lines.slice(-15).map((line) => JSON.stringify(line)), ...this.#errors.slice(-15)].join('\n');
  }
}

function parseLine(text: string): LogLine {
  try {
    return JSON.parse(text) as LogLine;
  } catch {
    return { msg: text }; // a crash of the runtime prints plain text, which the last words must show
  }
}
