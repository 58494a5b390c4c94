import type { Runtime } from '../../async/runtime.ts';

/**
 * What topics refused lately, for what the records are: too large, or invalid for a reason that only the broker knows.
 * Without it every reply to a topic that takes none costs two appends, in sequence, and each next part as many again.
 *
 * A topic is judged by its own answers alone. A record that was refused for its size shows that larger ones would be,
 * and a batch that larger batches would be. Other refusals say nothing about the next record, so a few of them must
 * follow each other, or there must be many, before the topic counts as one that takes none. After ten seconds it is
 * asked again.
 */

const REMEMBERED_MS = 10_000;
/** Requests name the topics. A topic that is forgotten costs a few appends more. */
const MAX_TOPICS = 1_000;
/** Records that were refused alone, in a row or in all, after which a topic gets no other. */
const IN_A_ROW = 3;
const IN_ALL = 32;

const OF_SIZE: ReadonlySet<string | undefined> = new Set(['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE']);

/** Why a record is not sent: for its size, or since its topic takes no record at all. */
type SkipReason = 'size' | 'any';

/** Records of a topic that were not sent, since it would refuse them as it refused others. */
export interface Skipped {
  readonly topic: string;
  readonly reason: SkipReason;
  readonly errorCode: string | undefined;
  readonly records: number;
}

interface RefusedLately {
  errorCode: string | undefined;
  /** A record of so many bytes, or more, is refused; so is a batch of several. */
  recordBytes: number;
  batchBytes: number;
  /** Records that were refused alone, but not for their size: in all, and since the topic took one. */
  inAll: number;
  inARow: number;
}

/** What topics have shown lately, each for so long. Requests name the topics, so there is room for a thousand. */
export class RecentTopics<T> {
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  readonly #forMs: number;
  readonly #byTopic = new Map<string, { readonly untilMs: number; readonly shown: T }>();

  constructor(runtime: Pick<Runtime, 'monotonicMs'>, forMs: number) {
    this.#runtime = runtime;
    this.#forMs = forMs;
  }

  get(topic: string): T | undefined {
    const known = this.#byTopic.get(topic);
    if (known === undefined || this.#runtime.monotonicMs() < known.untilMs) return known?.shown;
    this.#byTopic.delete(topic);
    return undefined;
  }

  set(topic: string, shown: T): void {
    if (this.#byTopic.size >= MAX_TOPICS) this.#byTopic.clear();
    this.#byTopic.set(topic, { untilMs: this.#runtime.monotonicMs() + this.#forMs, shown });
  }
}

export class Refusals {
  /** Topics of many senders: what one of them sends says nothing about the others. */
  readonly #shared: ReadonlySet<string>;
  readonly #lately: RecentTopics<RefusedLately>;

  constructor(runtime: Pick<Runtime, 'monotonicMs'>, shared: readonly string[]) {
    this.#lately = new RecentTopics(runtime, REMEMBERED_MS);
    this.#shared = new Set(shared);
  }

  /** Whether the topic refused anything lately. */
  has(topic: string): boolean {
    return this.#lately.get(topic) !== undefined;
  }

  /** Why the topic would refuse a record of so many bytes; undefined if it may take it. */
  expected(topic: string, bytes: number): (Omit<Skipped, 'records'> & { readonly message: string }) | undefined {
    const known = this.#lately.get(topic);
    if (known === undefined || bytes < known.recordBytes) return undefined;
    const { errorCode } = known;
    const reason = known.recordBytes === 0 ? 'any' : 'size';
    const what = reason === 'any' ? 'others' : 'one that is not larger';
    const message = `topic ${topic} refuses the record, as it refused ${what} a moment ago: ${errorCode}`;
    return { topic, reason, errorCode, message };
  }

  /** Whether the topic may take several records of so many bytes as one batch. */
  takesBatch(topic: string, bytes: number): boolean {
    return bytes < (this.#lately.get(topic)?.batchBytes ?? Number.POSITIVE_INFINITY);
  }

  accepted(topic: string): void {
    const known = this.#lately.get(topic);
    if (known !== undefined) known.inARow = 0;
  }

  /** An append of so many records was refused. */
  refused(topic: string, errorCode: string | undefined, records: number, bytes: number): void {
    const known = this.#lately.get(topic) ?? this.#begin(topic);
    known.errorCode = errorCode;
    const isOfSize = OF_SIZE.has(errorCode);
    if (isOfSize) known.batchBytes = Math.min(known.batchBytes, bytes);
    if (records > 1 || this.#shared.has(topic)) return;
    if (isOfSize) {
      known.recordBytes = Math.min(known.recordBytes, bytes);
      return;
    }
    known.inAll += 1;
    known.inARow += 1;
    if (known.inARow >= IN_A_ROW || known.inAll >= IN_ALL) known.recordBytes = 0;
  }

  #begin(topic: string): RefusedLately {
    const [recordBytes, batchBytes] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    const refusal: RefusedLately = { errorCode: undefined, recordBytes, batchBytes, inAll: 0, inARow: 0 };
    this.#lately.set(topic, refusal);
    return refusal;
  }
}
