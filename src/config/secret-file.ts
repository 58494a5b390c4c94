import type { Secret } from '../core/secret.ts';
import { describeError } from '../errors.ts';

export type ReadText = (path: string) => string;

/** The text, or what is wrong with it. */
export type CheckText = (text: string) => { readonly text: string } | { readonly problem: string };

/**
 * A secret in a file, or another text of many lines, which may be replaced while the process runs, as rotation does. While what is there can't be read
 * or is not valid, the value before it is used: half of a rotation must not stop anybody.
 */
export class SecretFile {
  readonly variable: string;
  readonly path: string;
  readonly #readText: ReadText;
  #check: CheckText;
  #last: string;
  #problem: string | undefined;

  /** `variable`: the one that names the file. `first`: its text at the start, which is valid. */
  constructor(variable: string, path: string, first: string, readText: ReadText, check: CheckText) {
    this.variable = variable;
    this.path = path;
    this.#last = first;
    this.#readText = readText;
    this.#check = check;
  }

  /** Why the file's present text is not used, as of the last look. */
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

  /** Later texts have to pass this check, too: it returns what is wrong, as with what other variables say. */
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
      return { problem: `can not be read: ${describeError(error)}` };
    }
  }
}

/** The text of a secret's file: without the one line break that editors put at its end. */
export function textOf(content: string): string {
  return content.replace(/\r?\n$/, '');
}
