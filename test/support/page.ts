import { expect } from 'vitest';
import { blockCommands, readPage } from './docs.ts';
import { runIdalloc } from './worker-process.ts';

export type Env = Readonly<Record<string, string>>;

/** A page of docs that a test follows. `here` replaces the page's names by those of the test's realm. */
export class Page {
  /** The commands of all blocks, in order. */
  readonly commands: readonly string[];
  readonly #here: (text: string) => string;

  constructor(name: string, here: (text: string) => string) {
    this.commands = blockCommands(readPage(`docs/${name}`)).map(({ command }) => command);
    this.#here = here;
  }

  /** The variables set by the exports that `counts` selects; with a separate index directory for each worker. */
  exported(counts: (command: string) => boolean = () => true): Env {
    const exports = this.commands.filter((command) => command.startsWith('export ') && counts(command));
    const words = exports.flatMap((text) => text.split(' ').slice(1));
    const pairs = words.map((word) => word.split('=') as [string, string]).filter(([name]) => name !== 'INDEX_DIR');
    return Object.fromEntries(pairs.map(([name, value]) => [name, this.#here(value)]));
  }

  /** Runs a command of the page; resolves with its output if it succeeds. */
  async run(command: string, env: Env): Promise<string> {
    expect(this.commands).toContain(command);
    const { code, stdout, stderr } = await runIdalloc(this.#here(command).split(' ').slice(1), env);
    expect({ code, stderr }).toMatchObject({ code: 0 });
    return stdout;
  }
}
