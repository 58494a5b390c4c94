import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface, type Interface } from 'node:readline';

/**
 * A program that answers each line of JSON on its standard input with one on its standard output. One call at a time.
 */
export class LineService implements AsyncDisposable {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: Interface;
  #errors = '';

  constructor(command: string, args: readonly string[], cwd: string) {
    this.#child = spawn(command, args, { cwd });
    this.#child.stderr.on('data', (chunk) => {
      this.#errors += chunk;
    });
    this.#lines = createInterface({ input: this.#child.stdout });
  }

  async call(request: object): Promise<unknown> {
    const answer = Promise.race([once(this.#lines, 'line'), once(this.#child, 'exit')]);
    this.#child.stdin.write(`${JSON.stringify(request)}\n`);
    const [line] = await answer;
    if (typeof line !== 'string') throw new Error(`the service exited with ${line}: ${this.#errors}`);
    return JSON.parse(line);
  }

  /** Ends its input. The result is its exit code. */
  async end(): Promise<number | null> {
    const exited = this.#child.exitCode === null ? once(this.#child, 'exit') : undefined;
    this.#child.stdin.end();
    await exited;
    return this.#child.exitCode;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }
}
