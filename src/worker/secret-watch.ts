import type { SecretFile } from '../config/secret-file.ts';
import type { Runtime, Timer } from '../core/runtime.ts';
import type { Log } from '../log.ts';

const CHECK_MS = 5_000;

/** Logs changes of files named by variables, so that operators can follow a rotation. Users of the files read them themselves. */
export class SecretWatch implements Disposable {
  readonly #runtime: Pick<Runtime, 'schedule'>;
  readonly #log: Log;
  readonly #seen: Map<SecretFile, { text: string; problem: string | undefined }>;
  #timer: Timer | undefined;

  constructor(files: readonly SecretFile[], runtime: Pick<Runtime, 'schedule'>, log: Log) {
    this.#runtime = runtime;
    this.#log = log;
    this.#seen = new Map(files.map((file) => [file, { text: file.current(), problem: file.problem }]));
    if (files.length > 0) this.#schedule();
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel();
  }

  #schedule(): void {
    this.#timer = this.#runtime.schedule(CHECK_MS, () => {
      for (const [file, seen] of this.#seen) this.#check(file, seen);
      this.#schedule();
    });
  }

  #check(file: SecretFile, seen: { text: string; problem: string | undefined }): void {
    const text = file.current();
    const { variable, path, problem } = file;
    if (text !== seen.text)
      this.#log.info({ variable, path }, 'secret file replaced; new connections, logins and requests use it');
    if (problem !== undefined && problem !== seen.problem) {
      this.#log.error({ variable, path, problem }, 'secret file invalid; its last valid text stays in use');
    }
    seen.text = text;
    seen.problem = problem;
  }
}
