import type { Timer } from '../async/runtime.ts';
import { inMicrotask } from '../async/waiting.ts';
import { countIds, type IdBatch } from '../codec/id-batch.ts';
import { encodeIdReply } from '../codec/id-reply.ts';
import { decodeIdRequest, type IdRequest } from '../codec/id-request.ts';
import {
  conflictText,
  expiredText,
  numbersConflictText,
  quotaText,
  tooManyText,
  unknownSequenceText,
} from '../codec/refusal-texts.ts';
import { textOfId } from '../codec/request-checks.ts';
import type { Numbers } from '../codec/sequence-entry.ts';
import type { IdRange } from '../core/generator.ts';
import { compose, type Layout, toTicks } from '../core/layout.ts';
import { presetLayout } from '../core/presets.ts';
import { type Ticks, wallMs } from '../core/units.ts';
import { ERRORS, type ErrorCode, IdallocError } from '../errors.ts';
import { RUNTIME } from '../runtime.ts';
import { IdClient } from './client.ts';
import type { BufferOptions } from './options.ts';
import type { OutgoingRequest, Transport, TransportEvents } from './requester.ts';

export interface MemoryWorkersOptions {
  /** Wall milliseconds for the IDs; by default those of the system. IDs that are buffered already keep their time. */
  readonly clock?: () => number;
  /** Default: the default layout. */
  readonly layout?: Layout;
  readonly datacenterId?: number;
  readonly workerId?: number;
}

/** A request that the workers have read, resent ones included. */
export interface SeenRequest {
  readonly correlationId: Uint8Array;
  readonly count: number;
  readonly replyTopic: string;
  readonly expiresAt: Date | undefined;
}

/** How a request is answered while nothing else is set. */
type ServingMode =
  | { readonly kind: 'serving' | 'silent' | 'unreachable' }
  | ({ readonly kind: 'refusing'; readonly code: ErrorCode; readonly message: string } & RefusalOptions);

interface RefusalOptions {
  /** After this time the client may try again, as the workers say for a quota; default: they do not know. */
  readonly retryAfterMs?: number | undefined;
}

/** What a correlation ID was decided for, on the reply topic of its request. */
type Addressed<Content> = Content & { readonly replyTopic: string };

const REPLY_TOPIC = 'id.replies.memory';
const FENCE = 1n;

/**
 * Workers in memory, for unit tests of services: their clients are real ones, whose requests reach these workers
 * instead of Kafka. They keep the rules of real workers for correlation IDs, expiry and counts, and break on demand.
 */
export class MemoryWorkers {
  readonly #options: Required<MemoryWorkersOptions>;
  readonly #decided = new Map<string, Addressed<{ readonly batch: IdBatch }>>();
  readonly #sequences = new Map<string, MemorySequence>();
  readonly #links = new Set<MemoryLink>();
  readonly #requests: SeenRequest[] = [];
  /** Requests that are read once the workers run again. */
  readonly #unread: (() => void)[] = [];
  #mode: ServingMode = { kind: 'serving' };
  #delayMs = 0;
  /** The next ID is this one of the sequence of this tick, or the first of a later tick. */
  #ticks = 0;
  #sequence = 0;

  /** @throws IdallocError CONFIG_INVALID for a worker or datacenter ID that the layout does not have. */
  constructor(options: MemoryWorkersOptions = {}) {
    this.#options = {
      clock: options.clock ?? (() => RUNTIME.wallMs()),
      layout: options.layout ?? presetLayout('default'),
      datacenterId: options.datacenterId ?? 0,
      workerId: options.workerId ?? 0,
    };
    const { layout, datacenterId, workerId } = this.#options;
    if (isWithin(datacenterId, layout.maxDatacenter) && isWithin(workerId, layout.maxWorker)) return;
    const limits = `datacenterId 0 to ${layout.maxDatacenter} and workerId 0 to ${layout.maxWorker}`;
    throw invalid(`layout '${layout.name}' has ${limits}, not ${datacenterId} and ${workerId}`);
  }

  /**
   * A client of these workers, with the options of IdClient.connect except those of Kafka. While the workers serve, its
   * buffer is full.
   *
   * @throws IdallocError CONFIG_INVALID for invalid options.
   */
  async connect(options: BufferOptions = {}): Promise<IdClient> {
    let opened: MemoryLink | undefined;
    const link = async (events: TransportEvents) => {
      opened = new MemoryLink(events, (record, answer) => this.#accept(record, answer));
      return opened;
    };
    const onOpen = (dropAll: () => void) => {
      if (opened !== undefined) opened.dropAll = dropAll;
    };
    const client = await IdClient.over({ runtime: RUNTIME, replyTopic: REPLY_TOPIC, link, onOpen }, options);
    if (opened !== undefined) this.#links.add(opened);
    const fills = options.prefetch !== false && this.#mode.kind === 'serving' && this.#delayMs === 0;
    if (fills) await client.ready();
    return client;
  }

  /** Creates a sequence that starts at `start`, by default 1, as `idalloc sequence create` does for real workers. */
  createSequence(name: string, { start = 1, step = 1, format = '' } = {}): void {
    this.#sequences.set(name, { next: start, step, format, decided: new Map() });
  }

  /** The requests that the workers have read, in their order; for assertions. */
  get requests(): readonly SeenRequest[] {
    return this.#requests;
  }

  /** From now on no request is read, as while no worker runs. Clients go on with what they have buffered. */
  stop(): void {
    this.#mode = { kind: 'silent' };
  }

  /** Like stop(), and the buffers of all clients are empty: next() and take() throw BUFFER_EMPTY. */
  empty(): void {
    this.stop();
    for (const { dropAll } of this.#links) dropAll();
  }

  /**
   * From now on each request that has no batch yet is refused with this code. The client waits out a refusal that is
   * retryable; one that names a time beyond the call's timeout rejects the call at once.
   *
   * @param message by default the workers' text for QUOTA_EXCEEDED, and else the code
   * @throws IdallocError CONFIG_INVALID for an unknown code, or a time that is not a number of milliseconds.
   */
  refuse(code: ErrorCode, message?: string, options: RefusalOptions = {}): void {
    const { retryAfterMs = code === 'QUOTA_EXCEEDED' ? 1_000 : undefined } = options;
    const codes = Object.keys(ERRORS);
    if (!codes.includes(code)) throw invalid(`workers have no code ${code}: the codes are ${codes.join(', ')}`);
    if (retryAfterMs !== undefined && !isWithin(retryAfterMs, Number.MAX_SAFE_INTEGER)) {
      throw invalid(`retryAfterMs must be a whole number of 0 or more, not ${retryAfterMs}`);
    }
    const isQuota = code === 'QUOTA_EXCEEDED' && retryAfterMs !== undefined;
    const text = isQuota ? quotaText('id.replies.', '1000 IDs a second', retryAfterMs) : code;
    this.#mode = { kind: 'refusing', code, message: message ?? text, retryAfterMs };
  }

  /** From now on requests can't be sent: KAFKA_UNAVAILABLE. */
  disconnect(): void {
    this.#mode = { kind: 'unreachable' };
  }

  /** From now on replies come after this time. With fake timers they come when the test lets it pass. */
  slow(delayMs: number): void {
    this.#delayMs = delayMs;
  }

  /**
   * Ends all faults. Requests that were sent meanwhile are answered now; those that could not be sent, or were refused,
   * when the client tries again.
   */
  recover(): void {
    this.#mode = { kind: 'serving' };
    this.#delayMs = 0;
    for (const accept of this.#unread.splice(0)) accept();
  }

  /** Passes the reply to `answer` as soon as the request is read. Throws KAFKA_UNAVAILABLE. */
  #accept(record: SentRecord, answer: (reply: MemoryReply) => void): void {
    const mode = this.#mode;
    if (mode.kind === 'unreachable') {
      throw new IdallocError(
        'KAFKA_UNAVAILABLE',
        'the brokers of these workers are away: see MemoryWorkers.disconnect',
      );
    }
    if (mode.kind === 'silent') this.#unread.push(() => this.#accept(record, answer));
    else answer(this.#read(record, mode));
  }

  #read({ value, correlationId }: SentRecord, mode: ServingMode): MemoryReply {
    const request = { ...decodeIdRequest(value), correlationId };
    const { expiresAtMs } = request;
    this.#requests.push({
      correlationId,
      count: request.count,
      replyTopic: request.replyTopic ?? REPLY_TOPIC,
      expiresAt: expiresAtMs === undefined ? undefined : new Date(expiresAtMs),
    });
    const key = correlationId.toString('latin1');
    const { sequence } = request;
    const decided = sequence === undefined ? this.#decided : this.#sequences.get(sequence)?.decided;
    const replayed = decided?.has(key) === true;
    const encoding = request.encoding ?? 'RANGES';
    const reply = { key: correlationId, delayMs: this.#delayMs };
    try {
      const content =
        sequence === undefined
          ? { batch: this.#decide(request, key, mode) }
          : { numbers: { sequence, ...this.#number(request, sequence, key, mode) } };
      return { ...reply, value: encodeIdReply({ correlationId, ...content }, encoding), replayed };
    } catch (error) {
      if (!(error instanceof IdallocError)) throw error;
      const { code, message, retryAfterMs } = error;
      const value = encodeIdReply({ correlationId, error: { code, message } }, encoding);
      return { ...reply, value, replayed: false, retryAfterMs };
    }
  }

  #number(request: IdRequest, name: string, key: string, mode: ServingMode): Numbers {
    const { count, replyTopic = REPLY_TOPIC } = request;
    const sequence = this.#sequences.get(name);
    const known = sequence?.decided.get(key);
    if (known !== undefined) {
      if (known.count === count && known.replyTopic === replyTopic) return known;
      const id = textOfId(request.correlationId ?? Buffer.alloc(0));
      throw new IdallocError('CONFLICT', numbersConflictText(known, id, name));
    }
    this.#admit(request, mode);
    if (sequence === undefined) throw new IdallocError('UNKNOWN_SEQUENCE', unknownSequenceText(name));
    const { next: first, step, format } = sequence;
    sequence.next += count * step;
    const numbers = { first, count, step, format };
    sequence.decided.set(key, { ...numbers, replyTopic });
    return numbers;
  }

  /** Throws why a new request is refused. */
  #admit({ count, expiresAtMs }: IdRequest, mode: ServingMode): void {
    const { layout, clock } = this.#options;
    if (mode.kind === 'refusing') throw new IdallocError(mode.code, mode.message, mode);
    if (count > layout.maxCount) throw new IdallocError('INVALID_COUNT', tooManyText(count, layout.maxCount));
    if (expiresAtMs !== undefined && expiresAtMs <= clock()) {
      throw new IdallocError('EXPIRED', expiredText(expiresAtMs));
    }
  }

  #decide(request: IdRequest, key: string, mode: ServingMode): IdBatch {
    const { count, replyTopic = REPLY_TOPIC } = request;
    const known = this.#decided.get(key);
    if (known !== undefined) {
      const before = { count: countIds(known.batch.ranges), replyTopic: known.replyTopic };
      if (before.count === count && before.replyTopic === replyTopic) return known.batch;
      throw new IdallocError('CONFLICT', conflictText(before, { count, replyTopic }, 'correlation ID', false));
    }
    this.#admit(request, mode);
    const batch = this.#allocate(count);
    this.#decided.set(key, { batch, replyTopic });
    return batch;
  }

  /** IDs of the clock's tick, and of later ones when that has no more: a clock that stands still never blocks. */
  #allocate(count: number): IdBatch {
    const { layout, datacenterId, workerId, clock } = this.#options;
    const nowMs = wallMs(clock());
    const nowTicks = toTicks(layout, nowMs);
    if (nowTicks > this.#ticks) {
      this.#ticks = nowTicks;
      this.#sequence = 0;
    }
    const ranges: IdRange[] = [];
    for (let left = count; left > 0; ) {
      const some = Math.min(left, layout.sequencesPerTick - this.#sequence);
      const parts = { datacenter: datacenterId, worker: workerId, sequence: this.#sequence };
      ranges.push({ first: compose(layout, { ticks: this.#ticks as Ticks, ...parts }), count: some });
      left -= some;
      this.#sequence += some;
      if (this.#sequence === layout.sequencesPerTick) {
        this.#sequence = 0;
        this.#ticks += 1;
      }
    }
    const { step, epochMs, fingerprint } = layout;
    const about = { datacenterId, workerId, fence: FENCE, epochMs, layoutFingerprint: fingerprint };
    return { ranges, step, ...about, generatedAtMs: nowMs };
  }
}

interface MemorySequence {
  next: number;
  readonly step: number;
  readonly format: string;
  readonly decided: Map<string, Addressed<Numbers>>;
}

function isWithin(value: number, most: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= most;
}

function invalid(message: string): IdallocError {
  return new IdallocError('CONFIG_INVALID', message);
}

/** The answer of workers in memory. */
interface MemoryReply {
  /** The correlation ID. */
  readonly key: Buffer;
  readonly delayMs: number;
  readonly value: Buffer;
  readonly replayed: boolean;
  readonly retryAfterMs?: number | undefined;
}

/** What workers in memory read of a request. */
type SentRecord = Pick<OutgoingRequest, 'value' | 'correlationId'>;
type Accept = (record: SentRecord, answer: (reply: MemoryReply) => void) => void;

/** The link of one client to workers in memory. */
class MemoryLink implements Transport {
  readonly #accept: Accept;
  readonly #events: TransportEvents;
  readonly #timers = new Set<Timer>();
  dropAll: () => void = () => undefined;

  constructor(events: TransportEvents, accept: Accept) {
    this.#events = events;
    this.#accept = accept;
  }

  async send(request: OutgoingRequest): Promise<void> {
    this.#accept(request, ({ delayMs, ...reply }) => {
      const deliver = () => this.#events.onReply(reply);
      if (delayMs === 0) inMicrotask(deliver);
      else this.#later(delayMs, deliver);
    });
  }

  partitionOf(): undefined {
    return undefined;
  }

  trouble(): undefined {
    return undefined;
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
  }

  #later(delayMs: number, deliver: () => void): void {
    const timer = RUNTIME.schedule(delayMs, () => {
      this.#timers.delete(timer);
      deliver();
    });
    this.#timers.add(timer);
  }
}
