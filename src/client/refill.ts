import { Backoff } from '../async/backoff.ts';
import { inMicrotask } from '../async/microtask.ts';
import type { Runtime, Timer } from '../async/runtime.ts';
import { type Layout, maxSmallCount } from '../core/layout.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Demand } from './demand.ts';
import { pauseAfter, RequestRefused } from './refusals.ts';
import type { BatchReply } from './requester.ts';
import type { IdStock } from './stock.ts';
import type { Waits, Wanted } from './waits.ts';

export interface RefillOptions {
  readonly stock: IdStock;
  readonly demand: Demand;
  readonly waits: Waits;
  readonly runtime: Runtime;
  readonly coverSeconds: number;
  readonly maxAgeMs: number;
  /** Maximum count of one request. */
  readonly maxCount: number;
  /** The layout of the IDs, once it is known. */
  readonly layout: () => Layout | undefined;
  /** Requests `count` IDs until the workers answer, or the signal aborts. */
  readonly request: (count: number, signal: AbortSignal) => Promise<BatchReply>;
  /** Called with each batch after it was added to its stock. */
  readonly onBatch: (reply: BatchReply, count: number) => void;
  readonly onError: (error: Error) => void;
}

/** Maximum number of concurrent requests for the buffer, and as many for callers that wait; of late ones likewise. */
const MAX_REQUESTS = 8;
const CHECK_EVERY_MS = 500;
/** A request without a reply for this long is late: its IDs no longer count as on their way. */
const LATE_MS = 2_000;
/**
 * While nothing is answered, each of so many replacements is for all that is lacking: when one of two workers is gone,
 * a single one goes to a partition of the other only as often as not.
 */
const TRIED = 2;
/** Workers answer requests up to this count at once, also while large ones wait; fewer in some layouts. */
const SMALL_COUNT = 4_000;
/** The longest pause that a refusal or an outage causes. */
const MAX_PAUSE_MS = 30_000;
/**
 * Without a refusal for so long, larger requests are tried again; later while they are refused: each is a dead letter.
 */
const WIDEN_MS = { least: 60_000, most: 3_600_000 };

interface Asked {
  readonly for: Wanted;
  readonly count: number;
  readonly sentMs: number;
  readonly ended: AbortController;
}

/**
 * Keeps the stock filled, and requests what callers wait for.
 *
 *   check:   compare what there is with what is wanted, twice a second and on demand
 *   late:    replaced by small requests, which the workers answer at once, also while large ones wait or a partition
 *            is not served. While no request of the buffer is answered, the pause before the next replacements doubles,
 *            so that an outage does not fill the topic. A late reply is as good as any other.
 *   pause:   no requests for a while after the workers refused one
 */
export class Refill {
  readonly #options: RefillOptions;
  readonly #wanted: readonly Wanted[];
  #maxCount: number;
  readonly #widening = new Backoff({ minMs: WIDEN_MS.least, maxMs: WIDEN_MS.most });
  #widensFromMs = 0;
  /** Whether the maximum count was not refused since it was set. */
  #isWidened = true;
  /** The requests in progress, oldest first. */
  readonly #asked = new Set<Asked>();
  readonly #doubling = new Backoff({ minMs: LATE_MS, maxMs: MAX_PAUSE_MS });
  #replacesFromMs = Number.NEGATIVE_INFINITY;
  /** Whether any request was answered since the last one was sent. */
  #isAnswered = false;
  #isCheckDue = false;
  #stopped = false;
  #checkTimer: Timer | undefined;
  #pause: Timer | undefined;
  /** Pauses since the last reply. */
  #refusals = 0;

  constructor(options: RefillOptions) {
    this.#options = options;
    this.#maxCount = options.maxCount;
    const forTakers = options.waits.wanted(() => this.#smallCount);
    const forBuffer = {
      stock: options.stock,
      lacking: (coming: number) => this.#lacking(coming),
      isReplaced: () => true,
    };
    this.#wanted = [forTakers, forBuffer];
  }

  start(): void {
    this.#options.stock.dropOld();
    this.#check();
    this.#checkTimer = this.#options.runtime.schedule(CHECK_EVERY_MS, () => this.start());
  }

  stop(): void {
    this.#stopped = true;
    this.#checkTimer?.cancel();
    this.#pause?.cancel();
  }

  /** Checks in a microtask, to keep it out of the caller's call stack. */
  check(): void {
    if (this.#isCheckDue) return;
    this.#isCheckDue = true;
    inMicrotask(() => {
      this.#isCheckDue = false;
      this.#check();
    });
  }

  get #smallCount(): number {
    const layout = this.#options.layout();
    return layout === undefined ? SMALL_COUNT : Math.min(SMALL_COUNT, maxSmallCount(layout));
  }

  #check(): void {
    const { stock, demand, waits, runtime, maxCount } = this.#options;
    if (this.#stopped) return;
    const nowMs = runtime.monotonicMs();
    demand.note(nowMs, stock.taken + waits.taken);
    stock.setLow(demand.low);
    if (this.#maxCount < maxCount && nowMs >= this.#widensFromMs) {
      this.#maxCount = Math.min(maxCount, 2 * this.#maxCount);
      this.#widensFromMs = nowMs + WIDEN_MS.least;
      if (this.#isWidened) this.#widening.reset();
      this.#isWidened = true;
    }
    for (const each of this.#wanted) this.#requestLacking(each, nowMs);
  }

  /** IDs for the buffer. Those that get too old within the time that it must last do not count. */
  #lacking(coming: number): number {
    const { stock, demand, waits, runtime, maxAgeMs, coverSeconds } = this.#options;
    const left = stock.sizeSince(runtime.monotonicMs() + 1_000 * coverSeconds - maxAgeMs) + coming;
    return left > demand.low && left >= waits.buffered ? 0 : Math.max(demand.full, waits.buffered) - left;
  }

  #requestLacking(wanted: Wanted, nowMs: number): void {
    const own = [...this.#asked].filter((asked) => asked.for === wanted);
    const late = own.filter(({ sentMs }) => nowMs - sentMs >= LATE_MS);
    for (const { ended } of late.slice(0, Math.max(0, late.length - MAX_REQUESTS))) ended.abort();
    const onTime = own.slice(late.length);
    const waitedFor = [...late.filter(({ sentMs }) => !wanted.isReplaced(sentMs)), ...onTime];
    const coming = waitedFor.reduce((sum, { count }) => sum + count, 0);
    let lacking = wanted.lacking(coming);
    let room = MAX_REQUESTS - onTime.length;
    if (this.#pause !== undefined || lacking <= 0 || room <= 0) return;
    const most = late.length > 0 ? Math.min(this.#maxCount, this.#smallCount) : this.#maxCount;
    if (late.length > 0 && !this.#isAnswered) {
      if (nowMs < this.#replacesFromMs) return;
      this.#replacesFromMs = nowMs + this.#doubling.nextMs();
      for (let sent = 0; sent < Math.min(room, TRIED); sent += 1)
        void this.#request(wanted, Math.min(lacking, most), nowMs);
      return;
    }
    for (; lacking > 0 && room > 0; room -= 1) {
      const count = Math.min(lacking, most);
      void this.#request(wanted, count, nowMs);
      lacking -= count;
    }
  }

  async #request(wanted: Wanted, count: number, sentMs: number): Promise<void> {
    const { demand, request, onBatch } = this.#options;
    const asked: Asked = { for: wanted, count, sentMs, ended: new AbortController() };
    this.#asked.add(asked);
    this.#isAnswered = false;
    try {
      const reply = await request(count, asked.ended.signal);
      const { ranges, step } = reply.batch;
      this.#asked.delete(asked);
      demand.replied(reply.latencyMs);
      this.#refusals = 0;
      this.#doubling.reset();
      this.#isAnswered = true;
      this.#replacesFromMs = Number.NEGATIVE_INFINITY;
      wanted.stock.add({ ranges, step, requestedAtMs: reply.sentAtMs });
      onBatch(reply, count);
    } catch (error) {
      this.#asked.delete(asked);
      if (!asked.ended.signal.aborted) this.#failed(error, count);
    }
    this.#check();
  }

  #failed(error: unknown, count: number): void {
    if (this.#stopped) return;
    const { runtime, waits, onError } = this.#options;
    if (error instanceof RequestRefused && error.code === 'INVALID_COUNT' && count > 1) {
      // Only the workers know their MAX_COUNT.
      this.#maxCount = Math.min(this.#maxCount, Math.floor(count / 2));
      if (this.#isWidened) this.#widensFromMs = runtime.monotonicMs() + this.#widening.nextMs();
      this.#isWidened = false;
      onError(error);
      return;
    }
    const refusal = error instanceof IdallocError ? error : new IdallocError('REFUSED', describeError(error));
    onError(refusal);
    waits.refused(refusal);
    if (this.#pause !== undefined) return;
    const { pauseMs, spreadMs } = pauseAfter(refusal, this.#refusals);
    this.#refusals += 1;
    this.#pause = runtime.schedule(Math.min(pauseMs, MAX_PAUSE_MS) + runtime.random() * spreadMs, () => {
      this.#pause = undefined;
      this.#check();
    });
  }
}
