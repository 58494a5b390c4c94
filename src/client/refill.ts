import { Backoff } from '../async/retrying.ts';
import type { Runtime, Timer } from '../async/runtime.ts';
import { inMicrotask } from '../async/waiting.ts';
import { type Layout, maxSmallCount } from '../core/layout.ts';
import { describeError, IdallocError } from '../errors.ts';
import { cameTooLate, pauseAfter, RequestRefused } from './refusals.ts';
import type { BatchReply } from './requester.ts';
import type { Demand, IdStock } from './stock.ts';
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
  /** Requests `count` IDs under this correlation ID until the workers answer, or the signal aborts. */
  readonly request: (correlationId: string, count: number, signal: AbortSignal) => Promise<BatchReply>;
  /** The partition that decides a request under this correlation ID; undefined if that is not known yet. */
  readonly partitionOf: (correlationId: string) => number | undefined;
  /** Called with each batch after it was added to its stock. */
  readonly onBatch: (reply: BatchReply, count: number) => void;
  readonly onError: (error: Error) => void;
}

/** The maximum number of concurrent requests for the buffer, and as many for callers that wait. */
const MAX_REQUESTS = 8;
/** So many late requests of each kind are still waited for. */
const MAX_LATE = 24;
const CHECK_EVERY_MS = 250;
/** A request without a reply for this long is late: its IDs no longer count as on their way. */
const LATE_MS = 2_000;
/**
 * While nothing is answered, so many rounds of replacements follow each other after LATE_MS; then the pauses double.
 */
const STEADY_ROUNDS = 5;
/** So many random correlation IDs are tried for one that goes to a partition of the kind that is wanted. */
const MAX_TRIES = 256;
/** Workers answer requests up to this count at once, also while large ones wait; fewer in some layouts. */
const SMALL_COUNT = 4_000;
/** The longest pause that a refusal or an outage causes. */
const MAX_PAUSE_MS = 30_000;
/**
 * Without a refusal for so long, larger requests are tried again; later while they are refused: each is a dead letter.
 */
const WIDEN_MS = { least: 60_000, most: 3_600_000 };

interface Asked {
  readonly wanted: Wanted;
  readonly correlationId: string;
  readonly count: number;
  readonly sentMs: number;
  readonly ended: AbortController;
}

/**
 * Keeps the stock filled, and requests what callers wait for.
 *
 * A service that calls next() waits for nothing, so its IDs have to be there before it asks. Demand says how many that
 * are: what the service takes in `coverSeconds`, and as many again. When the stock falls to the first half, the
 * second is requested. In calm weather that is all: one request, one reply, some thousand IDs.
 *
 * The trap is a request that gets no reply. Nobody knows why: its worker may be dead, its partition may be held by a
 * process that answers nothing, its broker may be away, or it may be one of many large requests that wait their turn.
 * If it went on counting as "on its way", the stock would run dry while all other partitions are served. If it were
 * given up and sent anew, each new one would get IDs as well, and an outage would fill the topic with requests that are
 * all answered at its end.
 *
 * So after two seconds a request is late. It is still waited for, and a late reply is as good as any other, but its IDs
 * no longer count. What is lacking is requested again, under three rules.
 *
 * - In small requests. Workers answer these at once, also while large ones wait.
 * - Elsewhere. The correlation ID decides which partition a request goes to, so random ones are tried until one goes to
 *   a partition where nothing of ours waits. Partitions that nobody serves each keep one request, and the rest are
 *   used.
 * - In shares. Until something is answered, nobody knows which partitions are served, so a round of up to eight
 *   requests shares what is lacking. Together they bring no more IDs than one request would. As soon as one is
 *   answered, what is still lacking is requested as usual.
 *
 * A worker that dies leaves its partitions unserved for about 10 s: of two workers, half of them. The late request and
 * those of the first round are in nine partitions, with a second round in 17. At least one of these is served, if there
 * are at most 32 partitions. The second round comes before the fifth second, which is the least that a cover can be for
 * next() to find an ID. While nothing is answered, rounds follow each other every two seconds, and after 10 s ever more
 * rarely. Where each partition has a request already, a round is a single one.
 *
 * A refusal is different: the workers are there and say no. Then there is a pause, for as long as they say. If they
 * refuse the count, requests get smaller, and larger again after a minute without a refusal.
 *
 *   check:  compare what there is with what is wanted, four times a second and on demand
 *   late:   no reply for LATE_MS; what is lacking is requested elsewhere, in rounds until one is answered
 *   pause:  no requests for a while after the workers refused one
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
  #answeredMs = Number.NEGATIVE_INFINITY;
  /** Rounds of replacements since the last answer. */
  #rounds = 0;
  #nextRoundMs = Number.NEGATIVE_INFINITY;
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
    stock.setLow(demand.isIdle ? Number.POSITIVE_INFINITY : demand.low); // the first call ends the idleness
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
    const own = [...this.#asked].filter((asked) => asked.wanted === wanted);
    const late = own.filter(({ sentMs }) => nowMs - sentMs >= LATE_MS);
    for (const { ended } of late.slice(0, Math.max(0, late.length - MAX_LATE))) ended.abort();
    const onTime = own.slice(late.length);
    const waitedFor = [...late.filter(({ sentMs }) => !wanted.isReplaced(sentMs)), ...onTime];
    const coming = waitedFor.reduce((sum, { count }) => sum + count, 0);
    let lacking = wanted.lacking(coming);
    let room = MAX_REQUESTS - onTime.length;
    if (this.#pause !== undefined || lacking <= 0 || room <= 0) return;
    const last = late.at(-1);
    const most = last === undefined ? this.#maxCount : Math.min(this.#maxCount, this.#smallCount);
    if (last !== undefined && this.#answeredMs < last.sentMs + LATE_MS) {
      if (nowMs < this.#nextRoundMs) return;
      this.#rounds += 1;
      this.#nextRoundMs = nowMs + Math.min(MAX_PAUSE_MS, LATE_MS * 2 ** Math.max(0, this.#rounds - STEADY_ROUNDS));
      const round = this.#round(room);
      const count = Math.min(Math.ceil(lacking / round.length), most);
      for (const correlationId of round) void this.#request({ wanted, correlationId, count, sentMs: nowMs });
      return;
    }
    for (; lacking > 0 && room > 0; room -= 1) {
      const count = Math.min(lacking, most);
      const { correlationId } = this.#outside(this.#partitions());
      void this.#request({ wanted, correlationId, count, sentMs: nowMs });
      lacking -= count;
    }
  }

  /** Correlation IDs for a round: one for each of up to `most` partitions where nothing of ours waits; at least one. */
  #round(most: number): readonly string[] {
    const partitions = this.#partitions();
    const round: string[] = [];
    while (round.length < most) {
      const { correlationId, isOutside } = this.#outside(partitions);
      if (!isOutside && round.length > 0) break;
      round.push(correlationId);
      partitions.add(this.#options.partitionOf(correlationId));
    }
    return round;
  }

  /** The partitions where requests of ours wait. */
  #partitions(): Set<number | undefined> {
    return new Set([...this.#asked].map(({ correlationId }) => this.#options.partitionOf(correlationId)));
  }

  /** A correlation ID whose request goes to none of these partitions; any one, if such an ID is not found. */
  #outside(partitions: ReadonlySet<number | undefined>): { correlationId: string; isOutside: boolean } {
    const { runtime, partitionOf } = this.#options;
    for (let tries = 1; ; tries += 1) {
      const correlationId = runtime.uuid();
      const partition = partitionOf(correlationId);
      const isOutside = !partitions.has(partition);
      if (isOutside || partition === undefined || tries === MAX_TRIES) return { correlationId, isOutside };
    }
  }

  async #request(question: Omit<Asked, 'ended'>): Promise<void> {
    const { stock, demand, request, onBatch, runtime, maxAgeMs } = this.#options;
    const asked: Asked = { ...question, ended: new AbortController() };
    const { wanted, correlationId, count } = asked;
    this.#asked.add(asked);
    try {
      const reply = await request(correlationId, count, asked.ended.signal);
      const { ranges, step } = reply.batch;
      this.#asked.delete(asked);
      demand.replied(reply.latencyMs);
      this.#refusals = 0;
      this.#rounds = 0;
      this.#nextRoundMs = Number.NEGATIVE_INFINITY;
      this.#answeredMs = runtime.monotonicMs();
      wanted.stock.add({ ranges, step, requestedAtMs: reply.sentAtMs });
      if (wanted.stock === stock && reply.latencyMs > maxAgeMs) this.#cameTooLate(asked, reply.latencyMs);
      onBatch(reply, count);
    } catch (error) {
      this.#asked.delete(asked);
      if (!asked.ended.signal.aborted) this.#failed(error, count);
    }
    this.#check();
  }

  /**
   * IDs can be as old as their request, since their reply does not say when they were allocated by this process's
   * clock. Workers answer small requests first, so that the next ones are likely to come in time.
   */
  #cameTooLate({ count }: Asked, latencyMs: number): void {
    const { stock, maxAgeMs, onError } = this.#options;
    stock.dropOld();
    if (count > this.#smallCount) this.#narrow(this.#smallCount);
    onError(cameTooLate(count, latencyMs, maxAgeMs));
  }

  /** Limits the count of requests for a while. */
  #narrow(maxCount: number): void {
    this.#maxCount = Math.min(this.#maxCount, maxCount);
    if (this.#isWidened) this.#widensFromMs = this.#options.runtime.monotonicMs() + this.#widening.nextMs();
    this.#isWidened = false;
  }

  #failed(error: unknown, count: number): void {
    if (this.#stopped) return;
    const { runtime, waits, onError } = this.#options;
    if (error instanceof RequestRefused && error.code === 'INVALID_COUNT' && count > 1) {
      this.#narrow(Math.floor(count / 2)); // only the workers know their MAX_COUNT
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
