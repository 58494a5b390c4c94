import { type DebtorSpan, MAX_DEBTOR_SPANS } from '../codec/request-position.ts';

/** A span that may grow: its account has been in debt since. */
interface GrowingSpan extends DebtorSpan {
  until: number;
  isOpen: boolean;
}

/**
 * Which requests of a partition wait because their accounts are in debt: all those to some reply topics in spans of
 * offsets.
 *
 * A debt is known to one worker, at one time. But whoever reads a request again has to know whether it waits: the lane
 * in which it does, when it was not kept in memory, and a successor. So a decision to wait is kept in a form that the
 * record alone is compared with. A request to a topic in one of its spans waits, without exception; none outside does.
 * So no span is extended over a request that was answered in its place.
 *
 * There are few spans, since they are committed with each position. Without room for another one a request is answered
 * in its place.
 */
export class DebtorSpans {
  #spans: GrowingSpan[];

  constructor(spans: readonly DebtorSpan[] = []) {
    this.#spans = spans.map((span) => ({ ...span, isOpen: false }));
  }

  /** What to commit. */
  get all(): readonly DebtorSpan[] {
    return this.#spans.map(({ topic, from, until }) => ({ topic, from, until }));
  }

  has(topic: number, offset: number): boolean {
    return this.#spans.some((span) => span.topic === topic && span.from <= offset && offset < span.until);
  }

  /** Lets a request wait, behind all that were looked at before. Returns false if there is no room for that. */
  add(topic: number, offset: number): boolean {
    const open = this.#spans.find((span) => span.topic === topic && span.isOpen);
    if (open !== undefined) open.until = offset + 1;
    else if (this.#spans.length < MAX_DEBTOR_SPANS) {
      this.#spans.push({ topic, from: offset, until: offset + 1, isOpen: true });
    } else return false;
    return true;
  }

  /** A request to this topic, behind all that were looked at before, does not wait. */
  close(topic: number): void {
    for (const span of this.#spans) if (span.topic === topic) span.isOpen = false;
  }

  /** Every request that waits below this offset has been answered. */
  answered(next: number): void {
    if (this.#spans.length > 0) this.#spans = this.#spans.filter(({ until }) => until > next);
  }
}
