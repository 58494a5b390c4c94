import type { IdBatch } from '../codec/id-batch.ts';
import { encodeIdReply } from '../codec/id-reply.ts';
import { decodeIdRequest, type IdRequest } from '../codec/id-request.ts';
import type { Numbers } from '../codec/sequence-entry.ts';
import type { IdRange } from '../core/generator.ts';
import { compose, type Layout, toTicks } from '../core/layout.ts';
import { presetLayout } from '../core/presets.ts';
import { type Ticks, wallMs } from '../core/units.ts';
import { type ErrorCode, IdallocError } from '../errors.ts';
import { RUNTIME } from '../runtime.ts';
import { IdClient } from './client.ts';
import { MemoryLink, type MemoryReply } from './memory-link.ts';
import type { BufferOptions } from './options.ts';
import type { TransportEvents } from './transport.ts';

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
type Mode =
  | { readonly kind: 'serving' | 'silent' | 'unreachable' }
  | { readonly kind: 'refusing'; readonly code: ErrorCode; readonly message: string };

const REPLY_TOPIC = 'id.replies.memory';
const FENCE = 1n;

/**
 * Workers in memory, for unit tests of services: their clients are real ones, whose requests reach these workers instead of
 * Kafka. They keep the rules of real workers for correlation IDs, expiry and counts, and break on demand.
 */
export class MemoryWorkers {
  readonly #options: Required<MemoryWorkersOptions>;
  readonly #decided = new Map<string, IdBatch>();
  readonly #sequences = new Map<string, MemorySequence>();
  readonly #links = new Set<MemoryLink>();
  readonly #requests: SeenRequest[] = [];
  /** Requests that are read once the workers run again. */
  readonly #unread: (() => void)[] = [];
  #mode: Mode = { kind: 'serving' };
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
    throw new IdallocError(
      'CONFIG_INVALID',
      `layout '${layout.name}' has ${limits}, not ${datacenterId} and ${workerId}`,
    );
  }

  /**
   * A client of these workers, with the options of IdClient.connect except those of Kafka. While the workers serve, its buffer
   * is full.
   *
   * @throws IdallocError CONFIG_INVALID for invalid options.
   */
  async connect(options: BufferOptions = {}): Promise<IdClient> {
    let opened: MemoryLink | undefined;
    const link = async (events: TransportEvents) => {
      opened = new MemoryLink(events, (value, answer) => this.#accept(value, answer));
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

  /** Creates a sequence that starts at `start`, by default 1. */
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

  /** From now on each request that has no batch yet is refused with this code. */
  refuse(code: ErrorCode, message: string = code): void {
    this.#mode = { kind: 'refusing', code, message };
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
   * Ends all faults. Requests that were sent meanwhile are answered now; those that could not be sent, or were refused, when the
   * client tries again.
   */
  recover(): void {
    this.#mode = { kind: 'serving' };
    this.#delayMs = 0;
    for (const accept of this.#unread.splice(0)) accept();
  }

  /** Passes the reply to `answer` as soon as the request is read. Throws KAFKA_UNAVAILABLE. */
  #accept(value: Buffer, answer: (reply: MemoryReply) => void): void {
    const mode = this.#mode;
    if (mode.kind === 'unreachable') {
      throw new IdallocError(
        'KAFKA_UNAVAILABLE',
        'the brokers of these workers are away: see MemoryWorkers.disconnect',
      );
    }
    if (mode.kind === 'silent') this.#unread.push(() => this.#accept(value, answer));
    else answer(this.#read(value, mode));
  }

  #read(value: Buffer, mode: Mode): MemoryReply {
    const request = decodeIdRequest(value);
    const correlationId = request.correlationId ?? Buffer.alloc(0);
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
    try {
      const content =
        sequence === undefined
          ? { batch: this.#decide(request, key, mode) }
          : { numbers: { sequence, ...this.#number(request, sequence, key, mode) } };
      const value = encodeIdReply({ correlationId, ...content }, encoding);
      return { key: correlationId, delayMs: this.#delayMs, value, replayed };
    } catch (error) {
      if (!(error instanceof IdallocError)) throw error;
      const reply = { correlationId, error: { code: error.code, message: error.message } };
      return { key: correlationId, delayMs: this.#delayMs, value: encodeIdReply(reply, encoding), replayed: false };
    }
  }

  #number(request: IdRequest, name: string, key: string, mode: Mode): Numbers {
    const { count } = request;
    const sequence = this.#sequences.get(name);
    const known = sequence?.decided.get(key);
    if (known !== undefined) {
      if (known.count === count) return known;
      const has = `${known.count} ${known.count === 1 ? 'number' : 'numbers'} of ${name}`;
      throw new IdallocError('CONFLICT', `this correlation ID has ${has}: ask for the same count`);
    }
    this.#admit(request, mode);
    if (sequence === undefined)
      throw new IdallocError('UNKNOWN_SEQUENCE', `see MemoryWorkers.createSequence('${name}')`);
    const { next: first, step, format } = sequence;
    sequence.next += count * step;
    const numbers = { first, count, step, format };
    sequence.decided.set(key, numbers);
    return numbers;
  }

  /** Throws why a new request is refused. */
  #admit({ count, expiresAtMs }: IdRequest, mode: Mode): void {
    const { layout, clock } = this.#options;
    if (mode.kind === 'refusing') throw new IdallocError(mode.code, mode.message);
    if (count > layout.maxCount) throw new IdallocError('INVALID_COUNT', `count ${count} is above ${layout.maxCount}`);
    if (expiresAtMs !== undefined && expiresAtMs <= clock()) {
      throw new IdallocError('EXPIRED', 'the request had expired when the workers read it');
    }
  }

  #decide(request: IdRequest, key: string, mode: Mode): IdBatch {
    const { count } = request;
    const known = this.#decided.get(key);
    if (known !== undefined) {
      const before = known.ranges.reduce((sum, range) => sum + range.count, 0);
      if (before === count) return known;
      throw new IdallocError('CONFLICT', `this correlation ID has a batch with another count than ${count}`);
    }
    this.#admit(request, mode);
    const batch = this.#allocate(count);
    this.#decided.set(key, batch);
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
  readonly decided: Map<string, Numbers>;
}

function isWithin(value: number, most: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= most;
}
