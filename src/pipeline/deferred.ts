import { type DebtorSpan, EVERY_RECORD, isNamed, MAX_DEBTOR_SPANS } from '../codec/request-position.ts';
import type { Payer } from './accounts.ts';
import type { RequestRecord } from './ports.ts';

/**
 * The lanes of a partition. `large`: requests for many IDs. `debts`: dense batches, and requests whose account is in
 * debt, whatever they ask for, so that the large ones of others don't wait for them. `numbers`: those for numbers of a
 * sequence, which wait for etcd. `small`: all others.
 */
export type LaneName = 'small' | DeferredLaneName;
export type DeferredLaneName = 'large' | 'debts' | 'numbers';

/** Whether the requests of a lane let others go first, in whatever the worker does. */
export function letsOthersGo(lane: LaneName | undefined): boolean {
  return lane === 'large' || lane === 'debts';
}

/** Where requests of other lanes wait, so that they do not hold up those after them. */
export type Deferrals = { readonly [lane in LaneName]?: Deferral };

/** What a position may say of who pays. */
type DebtorNames = Pick<Payer, 'replyTopic' | 'named'>;

/** Where requests of one lane wait. */
interface Deferral {
  /** Whether a request waits here for a debt: if who pays for it has one, or had at first. */
  defersDebtor(payer: DebtorNames, offset: number, isInDebt: boolean): boolean;
  /** Whether a request for which no debt of this name speaks now waits here all the same: it did at an earlier look. */
  keepsDebtor(replyTopic: string, offset: number): boolean;
  /** Whether requests wait here that the same account pays for. */
  waits(payer: DebtorNames): boolean;
  /**
   * Takes over a request, or all that the record stands for, in offset order; one that was taken over before is
   * ignored.
   */
  take(record: RequestRecord): void;
  /**
   * Takes over these records and all between them without a look at any, behind all that were looked at before. Returns
   * false if there is no room for that.
   */
  takeUnseen(first: RequestRecord, last: RequestRecord): boolean;
  /** How many requests were taken over so far. */
  readonly taken: number;
}

/** Offsets from `from` up to, but not including, `until`. */
export interface OffsetRange {
  readonly from: number;
  readonly until: number;
}

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
 * So no span is extended over a request that was answered in its place, unless its schema was unknown then.
 *
 * There are few spans, since they are committed with each position. The topics of a quota need one together. Without
 * room for another one a request is answered in its place.
 */
class DebtorSpans {
  #spans: GrowingSpan[];

  /** What lies below `end` of the spans of an earlier session. What comes from there on is looked at anew. */
  constructor(spans: readonly DebtorSpan[], end = 0) {
    const below = spans.filter(({ from }) => from < end);
    this.#spans = below.map((span) => ({ ...span, until: Math.min(span.until, end), isOpen: false }));
  }

  /** What to commit. */
  get all(): readonly DebtorSpan[] {
    return this.#spans.map(({ isOpen: _, ...span }) => span);
  }

  /** Whether a request to this topic waits; without a name, whether any record at the offset does. */
  has(replyTopic: string | undefined, offset: number): boolean {
    const isOne = (span: DebtorSpan) =>
      replyTopic === undefined ? span.topic === EVERY_RECORD : isNamed(span, replyTopic);
    return this.#spans.some((span) => span.from <= offset && offset < span.until && isOne(span));
  }

  /** Lets a request wait, behind all that were looked at before. Returns false if there is no room for that. */
  add({ replyTopic, named }: DebtorNames, offset: number): boolean {
    const open = this.#spans.find((span) => span.isOpen && isNamed(span, replyTopic));
    if (open !== undefined) open.until = offset + 1;
    else if (this.#spans.length < MAX_DEBTOR_SPANS) {
      this.#spans.push({ ...named, from: offset, until: offset + 1, isOpen: true });
    } else return false;
    return true;
  }

  /** Lets all of a range wait. It may use half of the room: each batch takes some of that. */
  addUnseen(range: OffsetRange): boolean {
    const hasOneMore = this.#spans.length < MAX_DEBTOR_SPANS / 2;
    if (hasOneMore) this.#spans.push({ topic: EVERY_RECORD, prefix: 0, ...range, isOpen: false });
    return hasOneMore;
  }

  /** A request to this topic, behind all that were looked at before, does not wait. */
  close(replyTopic: string): void {
    for (const span of this.#spans) if (span.isOpen && isNamed(span, replyTopic)) span.isOpen = false;
  }

  /** Whether requests wait that the same account pays for. */
  waits(payer: DebtorNames): boolean {
    if (this.#spans.length === 0) return false;
    const { named } = payer; // made at each look
    return this.#spans.some(({ topic, prefix }) => topic === named.topic && prefix === named.prefix);
  }

  /** Every request below this offset has been answered, in every lane. */
  passed(next: number): void {
    if (this.#spans.length > 0) this.#spans = this.#spans.filter(({ until }) => until > next);
  }
}

const MAX_REQUESTS = 1_000;
const MAX_BYTES = 1_048_576;
/** What a record takes besides its bytes, roughly. */
const RECORD_OVERHEAD = 200;

/**
 * The deferred requests of one partition, in offset order: the first ones in memory, and a range of offsets that holds
 * the others, which are read from the topic when the first ones are answered. So there is room for any number of them,
 * and dense batches, which always wait, need not be read before.
 */
export class DeferredQueue implements Deferral {
  readonly #onTaken: () => void;
  readonly #held: RequestRecord[] = [];
  #bytes = 0;
  #unread: OffsetRange | undefined;
  /** How many of the unread ones this queue has taken, and when the first was appended, as far as that is known. */
  #notHeld = 0;
  #unreadSinceMs: number | undefined;
  /** Everything below has been taken over, or is of another lane. */
  #through = -1;
  #taken = 0;
  readonly #debtors: DebtorSpans;

  /** `unread` holds requests that an earlier session took over and did not answer, `debtors` says which for a debt. */
  constructor(onTaken: () => void, unread?: OffsetRange, debtors: readonly DebtorSpan[] = []) {
    this.#onTaken = onTaken;
    this.#unread = unread;
    this.#debtors = new DebtorSpans(unread === undefined ? [] : debtors, unread?.until);
  }

  /**
   * While requests of an account wait, so do its next ones: served slowly, it is soon out of debt.
   *
   * Of a request that was looked at before, and is again since its chunk failed, the answer is as it was: what was
   * taken over then is not taken again.
   */
  defersDebtor(payer: DebtorNames, offset: number, isInDebt: boolean): boolean {
    const isLookedAt = offset < this.#through;
    if (!isLookedAt && (isInDebt || this.waits(payer))) return this.#debtors.add(payer, offset);
    return this.keepsDebtor(payer.replyTopic, offset);
  }

  keepsDebtor(replyTopic: string, offset: number): boolean {
    if (offset < this.#through) return this.#debtors.has(replyTopic, offset);
    this.#debtors.close(replyTopic);
    return false;
  }

  waits(payer: DebtorNames): boolean {
    return this.#debtors.waits(payer);
  }

  /** Whether a request to this reply topic waits here for a debt; without a name, whether whatever is there does. */
  isDebtor(replyTopic: string | undefined, offset: number): boolean {
    return this.#debtors.has(replyTopic, offset);
  }

  /** Which requests wait for debts, to be committed with `next`, below which every lane has answered all. */
  debtorsFrom(next: number): readonly DebtorSpan[] {
    this.#debtors.passed(next);
    return this.#debtors.all;
  }

  /** The first offset that may hold an unanswered request. */
  get first(): number | undefined {
    return this.#held[0]?.offset ?? this.#unread?.from;
  }

  /** The requests in memory. They come before the unread ones. */
  get held(): readonly RequestRecord[] {
    return this.#held;
  }

  get unread(): OffsetRange | undefined {
    return this.#unread;
  }

  /** How many wait at most, and the append time of the first (wall ms); undefined when none waits or none is known. */
  get oldest(): { readonly waiting: number; readonly sinceMs: number } | undefined {
    const sinceMs = this.#held[0]?.timestampMs ?? (this.#unread && this.#unreadSinceMs);
    return sinceMs === undefined ? undefined : { waiting: Math.max(1, this.#held.length + this.#notHeld), sinceMs };
  }

  get taken(): number {
    return this.#taken;
  }

  /** The first unread request has this append time (wall ms). */
  sawFirstUnread({ timestampMs }: RequestRecord): void {
    this.#unreadSinceMs = timestampMs;
  }

  take(record: RequestRecord): void {
    if (record.offset < this.#through) return;
    const from = Math.max(record.since ?? record.offset, this.#through);
    this.#through = record.offset + 1;
    const taken = this.#through - from;
    this.#taken += taken;
    const isRead = record.since === undefined;
    if (isRead && this.#unread === undefined && this.#held.length < MAX_REQUESTS && this.#bytes < MAX_BYTES) {
      this.#held.push(record.detached?.() ?? record);
      this.#bytes += sizeOf(record);
    } else {
      if (this.#unread === undefined) this.sawFirstUnread(record);
      this.#unread = { from: this.#unread?.from ?? from, until: this.#through };
      this.#notHeld += taken;
    }
    this.#onTaken();
  }

  takeUnseen(first: RequestRecord, last: RequestRecord): boolean {
    const [from, until] = [Math.max(first.offset, this.#through), last.offset + 1];
    const isTaken = from >= until || this.#debtors.addUnseen({ from, until });
    const { offset, timestampMs } = last;
    if (isTaken) this.take({ offset, timestampMs, since: from, key: null, value: null, headers: {} });
    return isTaken;
  }

  /** Every request that waits below this offset has been answered. */
  answered(next: number): void {
    for (let head = this.#held[0]; head !== undefined && head.offset < next; head = this.#held[0]) {
      this.#held.shift();
      this.#bytes -= sizeOf(head);
    }
    if (this.#held.length > 0 || this.#unread === undefined || this.#unread.from >= next) return;
    if (next < this.#unread.until) this.#unread = { from: next, until: this.#unread.until };
    else {
      this.#unread = undefined;
      this.#notHeld = 0;
    }
  }
}

function sizeOf({ fields }: RequestRecord): number {
  return RECORD_OVERHEAD + (fields?.bytes ?? 0);
}
