import { statSync } from 'node:fs';
import { platform } from 'node:os';
import type { Runtime } from '../async/runtime.ts';
import { every } from '../async/waiting.ts';
import { isPair, type SecretFile } from '../config/secret-file.ts';
import type { Log } from '../log.ts';

const CHECK_MS = 5_000;

/** The permission bits of a file; undefined where it has none, or can't be read. */
export type FileMode = (path: string) => number | undefined;

/** A client's or server's certificate and its key. */
const PAIRED = /^(.*)_(CERT|KEY)_FILE$/;
/** Read or write for everybody, not only for the owner and a group. */
const FOR_ALL = 0o006;

interface Seen {
  text: string;
  problem: string | undefined;
  /** `replaced`: to be logged; `alone`: it does not fit the other file of its pair, which was logged. */
  state: 'used' | 'replaced' | 'alone';
}

/** Windows has access lists, from which Node makes up bits that mean nothing. */
const fileMode: FileMode = (path) => {
  try {
    return platform() === 'win32' ? undefined : statSync(path).mode;
  } catch {
    return undefined; // it is being replaced
  }
};

/**
 * Logs changes of files named by variables, so that operators can follow a rotation: a certificate and its key count as
 * used when they fit together, since TLS loads neither before. Also warns about secrets that every user can read, at
 * the start and when they are replaced. Users of the files read them themselves.
 */
export class SecretWatch implements Disposable {
  readonly #log: Log;
  readonly #modeOf: FileMode;
  readonly #seen: Map<SecretFile, Seen>;
  readonly #watching: Disposable | undefined;

  constructor(files: readonly SecretFile[], runtime: Pick<Runtime, 'schedule'>, log: Log, modeOf = fileMode) {
    this.#log = log;
    this.#modeOf = modeOf;
    this.#seen = new Map(files.map((file) => [file, { text: file.current(), problem: file.problem, state: 'used' }]));
    for (const file of files) this.#warnIfOpen(file);
    if (files.length > 0) this.#watching = every(runtime, CHECK_MS, () => this.#checkAll());
  }

  [Symbol.dispose](): void {
    this.#watching?.[Symbol.dispose]();
  }

  #checkAll(): void {
    for (const [file, seen] of this.#seen) this.#check(file, seen);
    for (const [file, seen] of this.#seen) if (seen.state !== 'used') this.#checkPair(file, seen);
  }

  #check(file: SecretFile, seen: Seen): void {
    const text = file.current();
    const { variable, path, problem } = file;
    if (text !== seen.text) {
      seen.state = 'replaced';
      this.#warnIfOpen(file);
    }
    if (problem !== undefined && problem !== seen.problem) {
      this.#log.error({ variable, path, problem }, 'secret file invalid; its last valid text stays in use');
    }
    seen.text = text;
    seen.problem = problem;
  }

  #checkPair(file: SecretFile, seen: Seen): void {
    const { variable, path } = file;
    const other = this.#unfit(file);
    if (other === undefined) {
      seen.state = 'used';
      this.#log.info({ variable, path }, 'secret file replaced; new connections, logins and requests use it');
    } else if (seen.state === 'replaced') {
      seen.state = 'alone';
      const fields = { variable, path, other: other.variable, missing: other.path };
      this.#log.warn(
        fields,
        'secret file replaced, but the other file of the pair does not match it: replace that too',
      );
    }
  }

  /** The other file of a certificate and its key, if they do not fit together. */
  #unfit({ variable, current }: SecretFile): SecretFile | undefined {
    const [, prefix, kind] = PAIRED.exec(variable) ?? [];
    const name = `${prefix}_${kind === 'CERT' ? 'KEY' : 'CERT'}_FILE`;
    const other = [...this.#seen.keys()].find((file) => file.variable === name);
    if (kind === undefined || other === undefined) return undefined;
    const [cert, key] = kind === 'CERT' ? [current(), other.current()] : [other.current(), current()];
    return isPair(cert, key) ? undefined : other;
  }

  #warnIfOpen(file: SecretFile): void {
    const { variable, path, isPublic } = file;
    if (isPublic || ((this.#modeOf(path) ?? 0) & FOR_ALL) === 0) return;
    this.#log.warn(
      { variable, path },
      'secret file open to every user of this machine: take their rights away with chmod o-rwx, in Kubernetes with defaultMode 0440 and an fsGroup',
    );
  }
}
