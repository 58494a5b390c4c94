import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { installKafka } from '../../../ops/bare/kafka.ts';
import { isAtLeast, versionOf, which } from '../../../ops/bare/toolchain.ts';
import { cacheDir } from '../../../ops/dev/paths.ts';
import type { Program } from '../running.ts';

/** The peers that are not in JavaScript: transactional loops of other clients of Kafka. */
export const PEERS = ['java', 'librdkafka'] as const;
export type Peer = (typeof PEERS)[number];

const OLDEST_JDK = [17, 0] as const;
const COMPILE_TIMEOUT_MS = 120_000;
/** A peer's heap is fixed, so that the size of the machine does not change how often it collects. */
const HEAP = ['-Xms1g', '-Xmx1g'];
const source = (name: string) => join(import.meta.dirname, name);
const compile = (command: string, args: readonly string[]) =>
  promisify(execFile)(command, args, { timeout: COMPILE_TIMEOUT_MS });

/** A tool of a peer is missing; the message names it, and Debian's package that has it. */
class MissingTool extends Error {}

const COMPILERS: Readonly<Record<Peer, (into: string, say: (line: string) => void) => Promise<Program>>> = {
  async java(into, say) {
    const path = which('javac', process.env);
    const version = path === undefined ? undefined : versionOf(path, ['-version']);
    if (path === undefined || version === undefined || !isAtLeast(version, OLDEST_JDK))
      throw new MissingTool(`no JDK ${OLDEST_JDK[0]} or later (openjdk-17-jdk-headless)`);
    const libs = await installKafka(process.env, { cache: cacheDir(process.env), log: say });
    await compile(path, ['-d', into, '-cp', join(libs, '*'), source('Loop.java')]);
    const args = [...HEAP, '-cp', `${into}:${join(libs, '*')}`, 'Loop'];
    return { name: 'java', command: 'java', args, runsInFirstThread: false };
  },
  async librdkafka(into) {
    const path = which('cc', process.env);
    if (path === undefined) throw new MissingTool('no C compiler (gcc)');
    const includes = ['-include', 'librdkafka/rdkafka.h', '-fsyntax-only', '-x', 'c', '/dev/null'];
    await compile(path, includes).catch(() => {
      throw new MissingTool('no headers of librdkafka (librdkafka-dev)');
    });
    const program = join(into, 'loop');
    await compile(path, ['-O2', '-o', program, source('loop.c'), '-lrdkafka']);
    return { name: 'librdkafka', command: program, args: [], runsInFirstThread: true };
  },
};

/** Compiled peers, until they are disposed of. */
export class Peers implements Disposable {
  readonly #dir = mkdtempSync(join(tmpdir(), 'idalloc-peers-'));
  readonly #programs = new Map<Peer, Program>();

  /** Compiles those whose tools this machine has, and names the others with what is missing, each in a line. */
  static async compiled(peers: readonly Peer[], say: (line: string) => void): Promise<Peers> {
    using stack = new DisposableStack();
    const made = stack.use(new Peers());
    for (const peer of peers) {
      try {
        made.#programs.set(peer, await COMPILERS[peer](made.#dir, say));
      } catch (error) {
        if (!(error instanceof MissingTool)) throw error;
        say(`${peer} is left out: ${error.message}`);
      }
    }
    stack.move();
    return made;
  }

  /** Undefined for one that is left out. */
  program(peer: Peer): Program | undefined {
    return this.#programs.get(peer);
  }

  [Symbol.dispose](): void {
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
