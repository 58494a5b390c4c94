import type { Runtime } from '../async/runtime.ts';
import { every } from '../async/waiting.ts';
import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';

/** One stay in the request group. */
export interface GroupMember {
  /** False until it has joined, and after it was removed until it has joined again. */
  readonly joined: boolean;
  start(): void;
  /** Leaves the group after work in progress. */
  stop(): Promise<void>;
  pause(): void;
  resume(): void;
}

export interface MembershipOptions {
  /** Makes a member that has not joined yet. */
  readonly createMember: () => GroupMember;
  readonly isOpen: () => boolean;
  /** Whether the gate has been closed for longer than the grace time. */
  readonly graceExpired: () => boolean;
  readonly runtime: Runtime;
  readonly log: Log;
}

/** How often a closed gate is checked. */
const CHECK_MS = 500;

/**
 * Keeps the worker in the request group while it can serve.
 *
 *   out     -> in       the gate is open
 *   in      -> in       closed: paused immediately; open again: resumed in the same turn
 *   in      -> leaving  closed for longer than the grace time; leaving completes even if the gate opens meanwhile
 *   leaving -> out      left
 */
export class Membership {
  readonly #options: MembershipOptions;
  #member: GroupMember | undefined;
  #leaving: Promise<void> | undefined;
  readonly #watching: Disposable;
  #stopped = false;

  constructor(options: MembershipOptions) {
    this.#options = options;
    this.#watching = every(options.runtime, CHECK_MS, () => this.gateChanged());
  }

  get joined(): boolean {
    return this.#member?.joined ?? false;
  }

  /** Acts on the current state of the gate; pauses and resumes in this turn. */
  gateChanged(): void {
    if (this.#stopped) return;
    const { isOpen, graceExpired, createMember } = this.#options;
    const open = isOpen();
    if (open) this.#member?.resume();
    else this.#member?.pause();
    if (this.#leaving !== undefined) return;
    if (this.#member === undefined && open) {
      this.#member = createMember();
      this.#member.start();
    } else if (this.#member !== undefined && !open && graceExpired()) {
      this.#leave(this.#member);
    }
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#watching[Symbol.dispose]();
    if (this.#member !== undefined) this.#leave(this.#member);
    await this.#leaving;
  }

  #leave(member: GroupMember): void {
    this.#member = undefined;
    this.#leaving = member
      .stop()
      .catch((error) => this.#options.log.warn({ error: describeError(error) }, 'could not leave the request group'))
      .finally(() => {
        this.#leaving = undefined;
        this.gateChanged();
      });
  }
}
