import type { Secret } from '../core/secret.ts';
import { describeError } from '../errors.ts';

export type ReadText = (path: string) => string;

/** The text, or what is wrong with it. */
export type CheckText = (text: string) => { readonly text: string } | { readonly problem: string };

/**
 * A secret, or another text of many lines, in a file that may be replaced while the process runs, as in a rotation. While the
 * file cannot be read or is invalid, its last valid text is used, so that an incomplete rotation stops nothing.
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

/** The text of a secret's file, without the trailing line break that editors add. */
export function textOf(content: string): string {
  return content.replace(/\r?\n$/, '');
}
