import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync } from 'node:fs';

/**
 * The processes that are compared. 'worker' serves requests. 'copy' consumes a record, produces it and commits, with
 * kafkajs. 'wire' reads a record, appends it to a ledger, follows the ledger and replies, with our own wire. A program
 * copies as 'copy' does, with another client.
 */
export type Contender = 'worker' | 'copy' | 'wire' | Program;

/** A program that takes the arguments of the copy loop: brokers, topic to read, topic to write, group. */
export interface Program {
  readonly name: string;
  readonly command: string;
  /** Before those of the copy loop. */
  readonly args: readonly string[];
  /** As a process of Node or of C does. A JVM runs the main function in a thread that it starts. */
  readonly runsInFirstThread: boolean;
}

/** A contender that does not exit within this time of SIGTERM is killed. */
const STOP_TIMEOUT_MS = 15_000;
/** The unit of processor time in /proc. */
export const CPU_TICK_MS = 10;

/** The process of a contender. */
export class Running implements AsyncDisposable {
  readonly #contender: string;
  readonly #child: ChildProcess;
  readonly #index: string | undefined;
  readonly #runsInFirstThread: boolean;
  readonly #ended: Promise<unknown>;
  #exit: string | undefined;

  /** `index`: a directory to remove when the process is stopped; `runsInFirstThread`: see `Program`. */
  constructor(contender: string, child: ChildProcess, index: string | undefined, runsInFirstThread = true) {
    this.#contender = contender;
    this.#child = child;
    this.#index = index;
    this.#runsInFirstThread = runsInFirstThread;
    this.#ended = once(child, 'exit').then(([code, signal]) => {
      this.#exit = String(code ?? signal);
    });
  }

  /** Processor time since its start, of all its threads; NaN if the system does not report it. */
  cpuMs(): number {
    return cpuMsOf(this.#child.pid);
  }

  /** Its memory, in bytes; NaN if the system does not report it. */
  memoryBytes(): number {
    try {
      const [, kib] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${this.#child.pid}/status`, 'latin1')) ?? [];
      return Number(kib) * 1_024;
    } catch {
      return Number.NaN;
    }
  }

  /** Like `cpuMs`, of the threads that run now, for short times: see `fineCpuMsOf`. */
  fineCpuMs(): number {
    return fineCpuMsOf(this.#child.pid);
  }

  /**
   * Processor time of the thread that runs the program; NaN if the program chose another thread than its first, or if
   * the system does not report it.
   */
  mainThreadMs(): number {
    return this.#runsInFirstThread ? threadMs(this.#child.pid, this.#child.pid) : Number.NaN;
  }

  /** @throws Error when the process has exited by itself. */
  check(): void {
    if (this.#exit !== undefined) throw new Error(`the ${this.#contender} exited during the run, with ${this.#exit}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill('SIGTERM');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await this.#ended;
    clearTimeout(timer);
    if (this.#index !== undefined) rmSync(this.#index, { recursive: true, force: true });
  }
}

/** The processor time of a process since its start, in milliseconds; NaN if the system does not report it. */
export function cpuMsOf(pid: number | undefined): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [user = '', system = ''] = stat
      .slice(stat.lastIndexOf(')') + 2)
      .split(' ')
      .slice(11, 13);
    return (Number(user) + Number(system)) * CPU_TICK_MS;
  } catch {
    return Number.NaN;
  }
}

/**
 * The processor time of the threads of a process that run now, in milliseconds, where Linux counts nanoseconds: for
 * times so short that ticks would show none. Elsewhere that of the process, or NaN if the system does not report it.
 */
export function fineCpuMsOf(pid: number | undefined): number {
  const times = listed(`/proc/${pid}/task`).map((thread) => threadMs(pid, thread));
  const known = times.filter((ms) => !Number.isNaN(ms));
  return known.length === 0 ? cpuMsOf(pid) : known.reduce((sum, ms) => sum + ms);
}

/** The processor time of a thread; NaN if it has ended, or the system does not report it. */
function threadMs(pid: number | undefined, thread: number | string | undefined): number {
  const [ns] = procText(`/proc/${pid}/task/${thread}/schedstat`)?.split(' ') ?? [];
  return Number(ns) / 1e6;
}

/** The names in a directory of /proc; none if the process has ended, and where there is no /proc. */
function listed(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

/** A file of /proc; undefined if its process or thread has ended, and where there is no such file. */
export function procText(file: string): string | undefined {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return undefined;
  }
}
