import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/**
 * A program that answers each line of JSON on its standard input with one on its standard output. One call at a time.
 */
export class LineService implements AsyncDisposable {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;
  readonly #exited: Promise<unknown[]>;
  #errors = '';

  constructor(command: string, args: readonly string[], cwd: string) {
    this.#child = spawn(command, args, { cwd });
    this.#exited = once(this.#child, 'exit');
    this.#child.stdin.on('error', () => undefined); // it may have exited already
    this.#child.stderr.on('data', (chunk) => {
      this.#errors += chunk;
    });
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  async call(request: object): Promise<unknown> {
    this.#child.stdin.write(`${JSON.stringify(request)}\n`);
    const { value, done } = await this.#lines.next();
    if (done === true) throw new Error(`the service exited with ${await this.end()}: ${this.#errors}`);
    return JSON.parse(value);
  }

  /** Ends its input. The result is its exit code. */
  async end(): Promise<number | null> {
    this.#child.stdin.end();
    await this.#exited;
    return this.#child.exitCode;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }
}
