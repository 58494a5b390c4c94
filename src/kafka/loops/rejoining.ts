import type { Runtime, Timer } from '../../core/runtime.ts';
import type { MemberSettings } from './member-options.ts';

/**
 * When a member ends a generation that nobody else does. A generation lasts for a while at least, and all wishes of
 * that time are one; so is a wish with the join that is coming anyway, unless that has been sent.
 */
export class Rejoining {
  readonly #runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>;
  readonly #afterMs: number;
  readonly #begin: () => void;
  #isWished = false;
  #sinceMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  /** `begin` ends the present generation, if there is one: else it does nothing. */
  constructor(runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>, afterMs: number, begin: () => void) {
    this.#runtime = runtime;
    this.#afterMs = afterMs;
    this.#begin = begin;
  }

  /** The same settings, but a wish is fulfilled when the copies are asked for: that join says all that there is to say. */
  watching(settings: MemberSettings): MemberSettings {
    const { copies } = settings;
    if (copies === undefined) return settings;
    const asked = () => {
      this.#isWished = false;
      return copies();
    };
    return { ...settings, copies: asked };
  }

  wish(): void {
    this.#isWished = true;
    this.#arm();
  }

  /** A generation has begun. */
  joined(): void {
    this.#sinceMs = this.#runtime.monotonicMs();
    this.#arm();
  }

  end(): void {
    this.#isWished = false;
    this.#timer?.cancel();
  }

  #arm(): void {
    if (!this.#isWished) return;
    this.#timer?.cancel();
    const waitMs = Math.max(0, this.#sinceMs + this.#afterMs - this.#runtime.monotonicMs());
    this.#timer = this.#runtime.schedule(waitMs, () => {
      if (this.#isWished) this.#begin();
    });
  }
}
