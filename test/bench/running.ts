import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync } from 'node:fs';

/**
 * The processes that are compared. 'worker' serves requests. 'copy' consumes a record, produces it and commits, with
 * kafkajs. 'wire' reads a record, appends it to a ledger, follows the ledger and replies, with our own wire.
 */
export type Contender = 'worker' | 'copy' | 'wire';

/** A contender that does not exit within this time of SIGTERM is killed. */
const STOP_TIMEOUT_MS = 15_000;
/** The unit of processor time in /proc. */
const CPU_TICK_MS = 10;

/** The process of a contender. */
export class Running implements AsyncDisposable {
  readonly #contender: Contender;
  readonly #child: ChildProcess;
  readonly #index: string | undefined;
  readonly #ended: Promise<unknown>;
  #exit: string | undefined;

  /** `index`: a directory to remove when the process is stopped. */
  constructor(contender: Contender, child: ChildProcess, index: string | undefined) {
    this.#contender = contender;
    this.#child = child;
    this.#index = index;
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

  /**
   * Like `cpuMs`, of the threads that run now, in nanoseconds rather than ticks where Linux counts them: for short
   * times.
   */
  fineCpuMs(): number {
    try {
      const tasks = `/proc/${this.#child.pid}/task`;
      const used = readdirSync(tasks).map((task) =>
        Number(readFileSync(`${tasks}/${task}/schedstat`, 'latin1').split(' ')[0]),
      );
      return used.reduce((sum, ns) => sum + ns, 0) / 1e6;
    } catch {
      return this.cpuMs();
    }
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
