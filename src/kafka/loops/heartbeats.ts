import { Backoff } from '../../async/retrying.ts';
import type { Runtime, Timer } from '../../async/runtime.ts';
import { isUncoordinated } from '../wire/error-codes.ts';
import type { MemberRequest } from '../wire/group-apis.ts';
import { type KafkaErrorCode, kafkaErrorCode } from '../wire/kafka-error.ts';
import type { Coordinator } from './coordinator.ts';

export interface HeartbeatsOptions {
  readonly coordinator: Coordinator;
  readonly runtime: Runtime;
  readonly heartbeatMs: number;
  readonly sessionTimeoutMs: number;
  /** The member to send heartbeats for; undefined while there is none. */
  readonly member: () => MemberRequest | undefined;
  /** The coordinator answered, with an error if one is given. */
  readonly onResponse: (member: MemberRequest, sentMs: number, errorCode: KafkaErrorCode | undefined) => void;
  /** No coordinator answered that knows the group. */
  readonly onSilence: (error: unknown) => void;
}

const BACKOFF_MS = { minMs: 50, maxMs: 500 };
/** After silence another broker may have become coordinator: shorter time-outs find it sooner. */
const FIRST_RETRY_MS = 1_000;
const RETRY_GROWTH = 1.5;

/**
 * Sends heartbeats one at a time by the monotonic clock: each one an interval after the previous one was sent, and
 * after silence as soon as a short backoff is over. A response may take no longer than a third of the session.
 */
export class Heartbeats {
  readonly #options: HeartbeatsOptions;
  readonly #backoff: Backoff;

  constructor(options: HeartbeatsOptions) {
    this.#options = options;
    this.#backoff = new Backoff(BACKOFF_MS, () => options.runtime.random());
  }

  /** Ends when the signal aborts; never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { runtime, heartbeatMs } = this.#options;
    while (!signal.aborted) {
      const sentMs = runtime.monotonicMs();
      const member = this.#options.member();
      const responded = member === undefined || (await this.#beat(member, sentMs, signal));
      const dueMs = sentMs + heartbeatMs - runtime.monotonicMs();
      await runtime.sleep(responded ? Math.max(0, dueMs) : this.#backoff.nextMs(), signal);
    }
  }

  async #beat(member: MemberRequest, sentMs: number, signal: AbortSignal): Promise<boolean> {
    const { coordinator, onResponse, onSilence } = this.#options;
    let errorCode: KafkaErrorCode | undefined;
    try {
      await coordinator.call('control', this.#limitMs(), (link) => link.call('heartbeat', member));
    } catch (error) {
      errorCode = kafkaErrorCode(error);
      if (errorCode === undefined || isUncoordinated(errorCode)) {
        if (!signal.aborted) onSilence(error);
        return false;
      }
    }
    this.#backoff.reset();
    if (!signal.aborted) onResponse(member, sentMs, errorCode);
    return true;
  }

  #limitMs(): number {
    const maxMs = this.#options.sessionTimeoutMs / 3;
    const { failures } = this.#backoff;
    return failures === 0 ? maxMs : Math.min(maxMs, FIRST_RETRY_MS * RETRY_GROWTH ** Math.min(failures - 1, 10));
  }
}

/**
 * How long the coordinator considers a member alive without a call. The session counts from the sending of the last
 * answered call, since the coordinator can't have received it earlier.
 */
export class SessionWatch {
  readonly #runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>;
  readonly #sessionTimeoutMs: number;
  readonly #onLapse: () => void;
  #confirmedMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  constructor(runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>, sessionTimeoutMs: number, onLapse: () => void) {
    this.#runtime = runtime;
    this.#sessionTimeoutMs = sessionTimeoutMs;
    this.#onLapse = onLapse;
  }

  /** A call that was sent at `sentMs` was answered. Starts the watch if there is none. */
  confirm(sentMs: number): void {
    this.#confirmedMs = Math.max(this.#confirmedMs, sentMs);
    this.#timer?.cancel();
    const leftMs = this.#confirmedMs + this.#sessionTimeoutMs - this.#runtime.monotonicMs();
    this.#timer = this.#runtime.schedule(Math.max(0, leftMs), this.#onLapse);
  }

  end(): void {
    this.#timer?.cancel();
  }
}
