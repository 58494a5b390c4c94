import { createPrivateKey, X509Certificate } from 'node:crypto';
import type { Secret } from '../core/secret.ts';
import { describeError } from '../errors.ts';

export type ReadText = (path: string) => string;

/** The text, or what is wrong with it. */
export type CheckText = (text: string) => { readonly text: string } | { readonly problem: string };

/**
 * A secret, or another text of many lines, in a file that may be replaced while the process runs, as in a rotation.
 * While the file cannot be read or is invalid, its last valid text is used, so that an incomplete rotation stops
 * nothing.
 */
export class SecretFile {
  readonly variable: string;
  readonly path: string;
  readonly #readText: ReadText;
  #check: CheckText;
  #last: string;
  #problem: string | undefined;

  /** `variable`: the one that names the file. `first`: its text at the start, already checked. */
  constructor(variable: string, path: string, first: string, readText: ReadText, check: CheckText) {
    this.variable = variable;
    this.path = path;
    this.#last = first;
    this.#readText = readText;
    this.#check = check;
  }

  /**
   * Whether others may read it without harm: certificates, and quotas. Anything else in the file, such as a key beside
   * its certificate, makes it secret.
   */
  get isPublic(): boolean {
    return this.variable === 'QUOTAS_FILE' || (PEM.test(this.#last) && !PRIVATE.test(this.#last));
  }

  /** Why the file's text was not used at the last read; undefined when it was. */
  get problem(): string | undefined {
    return this.#problem;
  }

  readonly current: Secret = () => {
    const found = this.#look();
    if ('problem' in found) {
      this.#problem = found.problem;
    } else {
      this.#problem = undefined;
      this.#last = found.text;
    }
    return this.#last;
  };

  /** Adds a check for later texts, such as one against other variables. It returns the problem, if any. */
  alsoCheck(problemOf: (text: string) => string | undefined): void {
    const check = this.#check;
    this.#check = (text) => {
      const checked = check(text);
      const problem = 'text' in checked ? problemOf(checked.text) : undefined;
      return problem === undefined ? checked : { problem };
    };
  }

  #look(): ReturnType<CheckText> {
    try {
      return this.#check(textOf(this.#readText(this.path)));
    } catch (error) {
      return { problem: `cannot be read: ${describeError(error)}` };
    }
  }
}

const PEM = /^\s*-----BEGIN /;
const PRIVATE = /-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----/;
const CERTIFICATE = /-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----[^-]*-----END \1-----/g;

/**
 * What is wrong with a PEM text that replaces another one, if anything: each certificate and the private key must be
 * readable. Whether a key matches its certificate can't be said here, because one of the two files is replaced first.
 */
export function pemProblem(text: string): string | undefined {
  try {
    const certificates = text.match(CERTIFICATE) ?? [];
    for (const certificate of certificates) new X509Certificate(certificate);
    if (PRIVATE.test(text)) createPrivateKey(text);
    else if (certificates.length === 0) return 'has no complete certificate and no private key';
    return undefined;
  } catch (error) {
    return `is invalid: ${describeError(error)}`;
  }
}

/** Whether the private key is that of the (first) certificate. */
export function isPair(certificate: string, key: string): boolean {
  try {
    return new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key));
  } catch {
    return false;
  }
}

/** The text of a secret's file, without the trailing line break that editors add. */
export function textOf(content: string): string {
  return content.replace(/\r?\n$/, '');
}
