import type { Runtime } from '../../core/runtime.ts';
import { type FaultName, faultOf } from '../wire/fault.ts';
import type { MemberRequest } from '../wire/port.ts';
import { Backoff } from './backoff.ts';
import { type Coordinator, isUnanswered } from './coordinator.ts';

export interface PulseOptions {
  readonly coordinator: Coordinator;
  readonly runtime: Runtime;
  readonly heartbeatMs: number;
  readonly sessionTimeoutMs: number;
  /** Who is alive; undefined while there is nobody to speak for. */
  readonly who: () => MemberRequest | undefined;
  /** The coordinator has answered: well, or with a fault. */
  readonly onAnswer: (who: MemberRequest, sentMs: number, fault: FaultName | undefined) => void;
  /** Nobody answered who knows the group. */
  readonly onSilence: (error: unknown) => void;
}

const BACKOFF_MS = { min: 50, max: 500 } as const;
/** Once it was silent, the coordinator may have become another broker at any time: it is looked for more often. */
const FIRST_RETRY_MS = 1_000;
const RETRY_GROWTH = 1.5;

/**
 * Heartbeats, one at a time, timed by the monotonic clock: each a heartbeat interval after the one before was sent, and
 * after silence as soon as a short wait is over. An answer is waited for no longer than a third of the session.
 */
export class Pulse {
  readonly #options: PulseOptions;
  readonly #backoff: Backoff;

  constructor(options: PulseOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.runtime, BACKOFF_MS.min, BACKOFF_MS.max);
  }

  /** Ends when the signal aborts; never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { runtime, who, heartbeatMs } = this.#options;
    while (!signal.aborted) {
      const sentMs = runtime.monotonicMs();
      const member = who();
      const answered = member === undefined || (await this.#beat(member, sentMs, signal));
      const dueMs = sentMs + heartbeatMs - runtime.monotonicMs();
      await runtime.sleep(answered ? Math.max(0, dueMs) : this.#backoff.nextMs(), signal);
    }
  }

  async #beat(who: MemberRequest, sentMs: number, signal: AbortSignal): Promise<boolean> {
    const { coordinator, onAnswer, onSilence } = this.#options;
    let fault: FaultName | undefined;
    try {
      await coordinator.call('control', this.#limitMs(), (link) => link.heartbeat(who));
    } catch (error) {
      fault = faultOf(error);
      if (fault === undefined || isUnanswered(fault)) {
        if (!signal.aborted) onSilence(error);
        return false;
      }
    }
    this.#backoff.reset();
    if (!signal.aborted) onAnswer(who, sentMs, fault);
    return true;
  }

  #limitMs(): number {
    const maxMs = this.#options.sessionTimeoutMs / 3;
    const { failures } = this.#backoff;
    return failures === 0 ? maxMs : Math.min(maxMs, FIRST_RETRY_MS * RETRY_GROWTH ** Math.min(failures - 1, 10));
  }
}
