import { describeError } from './errors.ts';
import type { Log } from './log.ts';

/** What the membership starts and stops: one stay in the request group. */
export interface GroupMember {
  start(): Promise<void>;
  stop(): Promise<void>;
  pause(): void;
  resume(): void;
}

export interface MembershipOptions {
  /** Makes a member that has not joined yet; onCrash tells that it ended and will not come back by itself. */
  readonly createMember: (onCrash: (error: Error) => void) => GroupMember;
  readonly isOpen: () => boolean;
  /** Whether the gate has been closed for longer than its partitions should wait. */
  readonly graceOver: () => boolean;
  /** Whether the gate is closed for a wrong clock, after which no consumer from before may go on. */
  readonly isClockWrong: () => boolean;
  readonly log: Log;
}

/** How often a closed gate is looked at, and how long a crashed member rests. */
const CHECK_MS = 500;

/**
 * Keeps the worker in the request group while it can serve.
 *
 *   out     -> joining   the gate is open
 *   joining -> in        (a gate that closes meanwhile only pauses)
 *   in      -> in        closed: paused at once; open again: resumed
 *   in      -> out       closed for longer than the grace time, or the member is spent: its consumer crashed, or the
 *                        clock was wrong (kafkajs times its heartbeats by the wall clock, so after a step back it
 *                        would send none); also when the gate is open again by then
 *
 * Joining and leaving take time and never overlap: one step at a time, each decided when it begins.
 */
export class Membership {
  readonly #options: MembershipOptions;
  readonly #timer: NodeJS.Timeout;
  #member: GroupMember | undefined;
  #step: Promise<void> = Promise.resolve();
  #stepping = false;
  #stopped = false;
  #spent = false;

  constructor(options: MembershipOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.gateChanged(), CHECK_MS);
  }

  /** Acts on the gate as it is now; pausing and resuming happen at once. */
  gateChanged(): void {
    if (this.#stopped) return;
    const open = this.#options.isOpen();
    if (this.#options.isClockWrong() && this.#member !== undefined) this.#spent = true;
    if (open && !this.#spent) this.#member?.resume();
    else this.#member?.pause();
    if (this.#stepping) return;
    if (this.#member === undefined && open) this.#run(() => this.#join());
    else if (this.#member !== undefined && (this.#spent || (!open && this.#options.graceOver()))) {
      this.#run(() => this.#leave());
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearInterval(this.#timer);
    this.#member?.pause();
    await this.#step;
    await this.#leave();
  }

  #run(step: () => Promise<void>): void {
    this.#stepping = true;
    this.#step = step()
      .catch((error) => {
        this.#options.log.warn(
          { error: describeError(error) },
          'the request group was not joined or left; trying again',
        );
      })
      .finally(() => {
        this.#stepping = false;
      });
  }

  async #join(): Promise<void> {
    this.#spent = false;
    const member = this.#options.createMember((error) => {
      if (this.#member !== member) return;
      this.#options.log.warn({ error: describeError(error) }, 'the request consumer ended, a new one is made');
      this.#spent = true;
    });
    this.#member = member;
    try {
      await member.start();
    } catch (error) {
      this.#member = undefined;
      await member.stop();
      throw error;
    }
  }

  async #leave(): Promise<void> {
    const member = this.#member;
    this.#member = undefined;
    await member?.stop();
  }
}
