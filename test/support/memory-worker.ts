import { setImmediate as nextTurn } from 'node:timers/promises';
import { Slots } from '../../src/async/slots.ts';
import { decodeIdReply, type IdReply } from '../../src/codec/id-reply.ts';
import type { ReplyPolicy } from '../../src/codec/reply-policy.ts';
import { DEFAULT_HEADER_NAMES } from '../../src/codec/request-headers.ts';
import { type WallMs, wallMs } from '../../src/core/units.ts';
import type { ErrorCode } from '../../src/errors.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import type { EndHeads } from '../../src/ledger/end-heads.ts';
import { EtcdHeads } from '../../src/ledger/heads.ts';
import { Ledger, type LedgerOptions } from '../../src/ledger/ledger.ts';
import type { LedgerCopies, LedgerEntries, LedgerLog, TimeStep } from '../../src/ledger/ledger-ports.ts';
import { LedgerPartition } from '../../src/ledger/partition.ts';
import { Accounts, type DebtRate } from '../../src/pipeline/accounts.ts';
import { processBatch } from '../../src/pipeline/batch.ts';
import { type Accepted, type IntakeOptions, RequestReader } from '../../src/pipeline/intake.ts';
import { JunkLimits, type JunkRate } from '../../src/pipeline/junk-limits.ts';
import { NumberDecisions } from '../../src/pipeline/numbers.ts';
import { LARGE_AT_ONCE, type PipelineDeps } from '../../src/pipeline/part.ts';
import type { NumbersLoss, RequestRecord, SchemaIds } from '../../src/pipeline/ports.ts';
import { RecordTurns } from '../../src/pipeline/record-turns.ts';
import { type Tracing, UNTRACED } from '../../src/pipeline/trace.ts';
import { type Link as EtcdLink, FakeEtcd, goodLink } from '../identity/fake-etcd.ts';
import { CountingAllocator } from './memory-allocator.ts';
import { MemoryEndHeads, UNSEEN_ENDS } from './memory-ends.ts';
import { MemoryIndex } from './memory-index.ts';
import { type Link, type MemoryLedger, MemoryReader } from './memory-ledger.ts';
import { MemoryPublisher } from './memory-publisher.ts';
import { layout, REPLIES } from './memory-records.ts';

const REQUESTS = 'id.requests';
export const DEAD_LETTERS = 'id.requests.dlt';
export const MAX_COUNT = 100_000;
export const CLOCK_MARGIN_MS = 60_000;
export const RENEW_AFTER_MS = 1_800_000;
export const POLICY: ReplyPolicy = {
  prefix: 'id.replies.',
  requestTopic: REQUESTS,
  ownTopics: [REQUESTS, DEAD_LETTERS, 'id.ledger', 'id.witness', 'id.replies.ledger'],
};
/** A ledger that writes no statements of its own. */
/** A clock and an event loop that stand still. */
export const TIMELESS = { monotonicMs: () => 0, busyMs: () => 0, schedule: () => ({ cancel: () => {} }) };
const UNTIMED: TimeStep = async (_step, work) => await work();
export const WITHOUT_RESTATING = {
  restateAfterMs: Number.POSITIVE_INFINITY,
  now: () => wallMs(0),
  monotonicMs: () => 0,
  trustedNow: () => undefined,
  timeStep: UNTIMED,
  heads: new MemoryEndHeads(),
  endEvents: UNSEEN_ENDS,
};
/** An account for each reply topic. */
export function accountsWith(
  rate: DebtRate,
  monotonicMs = () => 0,
  waits: string[] = [],
  accountOf: (topic: string) => string | undefined = (topic) => topic,
): Accounts {
  return new Accounts({ rate, monotonicMs, accountOf, onWaits: (account) => waits.push(account) });
}

/** Timers that fire only when the test says so. */
export class ManualTimers {
  readonly #due = new Set<() => void>();

  readonly schedule = (_delayMs: number, run: () => void): { cancel(): void } => {
    this.#due.add(run);
    return { cancel: () => this.#due.delete(run) };
  };

  get pending(): number {
    return this.#due.size;
  }

  fire(): void {
    for (const run of [...this.#due]) {
      this.#due.delete(run);
      run();
    }
  }
}

export interface MemoryWorkerOptions {
  readonly topic: MemoryLedger;
  readonly partitions?: number;
  readonly workerId?: number;
  readonly link?: Link;
  readonly index?: LedgerCopies;
  /** Where single entries are read back; the topic itself by default. */
  readonly entries?: LedgerEntries;
  readonly now?: () => WallMs;
  /** If false, the reader runs only when polled; otherwise also while a caller waits for it. */
  readonly diligent?: boolean;
  readonly schemas?: SchemaIds;
  readonly junkRate?: JunkRate;
  /** By default nobody is ever in debt. */
  readonly accounts?: Accounts;
  /** The home partition of a correlation ID; without it, every request is served where it is. */
  readonly homeOf?: IntakeOptions['homeOf'];
  /** When sequences are stated again; never by default. */
  readonly ledger?: Pick<LedgerOptions, 'restateAfterMs' | 'now'>;
  /** The time by a trusted clock; undefined by default. */
  readonly trustedNow?: () => WallMs | undefined;
  readonly tracing?: Tracing;
  /** How far partitions had gone. Without it, a worker that took nothing over decides without a marker. */
  readonly heads?: EndHeads;
  /** Where the heads of sequences are; an empty etcd of its own by default. */
  readonly etcd?: FakeEtcd;
  readonly etcdLink?: EtcdLink;
  /** The UUID of the namespace. */
  readonly namespace?: () => string;
}

/** The UUID of the namespace, unless a test says otherwise. */
const NAMESPACE = '11111111-1111-4111-8111-111111111111';

export function headKeysOf(partition: number) {
  return ledgerHeadKeys('/keyspace', 3, 'id.ledger', partition);
}

/** Reads records as a worker does; by default every request is decided in the first partition. */
export function readerFor(options: Partial<IntakeOptions>): RequestReader {
  return new RequestReader({ names: DEFAULT_HEADER_NAMES, replyPolicy: POLICY, homeOf: () => 0, ...options });
}

/** A request that is read alone. Throws if it is rejected. */
export function accepted(record: RequestRecord, options: Partial<IntakeOptions> = {}): Accepted {
  const intake = readerFor(options).read(record);
  if (intake.kind === 'rejected') throw new Error(intake.message);
  return intake;
}

/** The real pipeline of one worker over topics in memory. `events` lists what happened, in order. */
export class MemoryWorker {
  readonly events: string[] = [];
  readonly errors: ErrorCode[] = [];
  /** The steps that were measured, in the order in which they began. */
  readonly steps: string[] = [];
  /** How many requests let others go first. */
  deferred = 0;
  /** How often the end of the ledger was requested. */
  endsRead = 0;
  readonly restarts: string[] = [];
  /** The long rests before numbers are tried again, in order. */
  readonly rests: number[] = [];
  /** The calls of etcd, in order. */
  readonly etcdCalls: string[] = [];
  /** What happened to sequences, in order. */
  readonly losses: NumbersLoss[] = [];
  readonly stopped: string[] = [];
  readonly etcd: FakeEtcd;
  readonly numbers: NumberDecisions;
  readonly timers = new ManualTimers();
  readonly publisher = new MemoryPublisher();
  readonly index: LedgerCopies;
  readonly allocator: CountingAllocator;
  readonly partitions: readonly LedgerPartition[];
  readonly reader: MemoryReader;
  readonly ledger: Ledger;
  readonly deps: PipelineDeps;
  readonly #options: MemoryWorkerOptions;
  /** Unless a test replaces it, records are read with what the dependencies are by then. */
  readonly #ownReader: RequestReader;

  constructor(options: MemoryWorkerOptions) {
    this.#options = options;
    this.#ownReader = readerFor({ schemas: options.schemas, ...(options.homeOf && { homeOf: options.homeOf }) });
    const { topic, partitions = 1, diligent = true, trustedNow = () => undefined } = options;
    this.index = options.index ?? new MemoryIndex();
    this.allocator = new CountingAllocator(options.workerId ?? 0);
    const following = {
      index: this.index,
      runtime: {
        schedule: (delayMs: number, run: () => void) => {
          if (diligent) queueMicrotask(() => this.catchUp());
          return this.timers.schedule(delayMs, run);
        },
      },
      onRestart: (partition: number, cause: string) => {
        this.restarts.push(cause);
        this.ledger.restarted(partition);
        this.reader.restart(partition);
      },
      onChange: () => {},
      onStop: () => {},
    };
    this.partitions = Array.from({ length: partitions }, (_, partition) => {
      this.index.load(partition);
      return new LedgerPartition(partition, following);
    });
    for (const partition of this.partitions) partition.open();
    this.reader = new MemoryReader(topic, this.partitions);
    const log = this.#recorded(topic.producer(options.link));
    this.ledger = new Ledger({
      ...WITHOUT_RESTATING,
      timeStep: this.#timeStep,
      log,
      entries: { ...topic.entries, ...options.entries },
      index: this.index,
      partitions: this.partitions,
      trustedNow,
      heads: options.heads ?? new MemoryEndHeads(),
      ...options.ledger,
    });
    if (options.heads === undefined) this.ledger.ends.isCompared = async () => true;
    this.publisher.onEvent = (what, records) => {
      for (const { topic: to, key } of records) this.events.push(`${what} ${to} ${key?.toString() ?? ''}`);
    };
    this.etcd = options.etcd ?? new FakeEtcd(() => 0);
    const { etcdLink = goodLink } = options;
    const port = this.etcd.port(async (name) => {
      this.etcdCalls.push(name);
      return await etcdLink(name);
    });
    this.numbers = new NumberDecisions({
      heads: new EtcdHeads({ etcd: port, keysOf: headKeysOf }),
      namespace: options.namespace ?? (() => NAMESPACE),
      runtime: {
        sleep: async (delayMs) => {
          if (delayMs >= 1_000) this.rests.push(delayMs);
          this.catchUp();
        },
        random: () => 0,
      },
      timeStep: this.#timeStep,
      observe: {
        swapped: (outcome) => this.events.push(`swap ${outcome}`),
        lost: (loss) => this.losses.push(loss),
        repaired: () => this.events.push('repaired'),
        stopped: (_partition, sequence) => this.stopped.push(sequence),
      },
    });
    this.deps = {
      layout,
      datacenterId: 3,
      maxCount: MAX_COUNT,
      index: this.index,
      partitions: this.partitions.length,
      ledger: this.ledger,
      allocator: this.allocator,
      numbers: this.numbers,
      now: options.now ?? (() => wallMs(1_700_000_000_000)),
      trustedNow,
      names: DEFAULT_HEADER_NAMES,
      requestTopic: REQUESTS,
      deadLetterTopic: DEAD_LETTERS,
      reader: this.#ownReader,
      replyTopics: { exists: async () => true },
      publisher: this.publisher,
      largePublisher: this.publisher,
      largeSlots: new Slots(LARGE_AT_ONCE),
      turns: new RecordTurns({ ...TIMELESS, nextTurn, sleep: () => nextTurn() }),
      accounts: options.accounts ?? accountsWith({ usPerMs: 1, burstUs: Number.POSITIVE_INFINITY }),
      junk: new JunkLimits(options.junkRate ?? { perSecond: 10, burst: 1_000 }, { monotonicMs: () => 0 }),
      schemas: options.schemas,
      observe: {
        served: () => {},
        replied: () => {},
        failed: (code, requests) => this.errors.push(...Array.from({ length: requests }, () => code)),
        deadLettered: () => {},
        forwarded: () => {},
        deferred: (requests) => {
          this.deferred += requests;
        },
      },
      timeStep: this.#timeStep,
      tracing: options.tracing ?? UNTRACED,
      renewAfterMs: RENEW_AFTER_MS,
      clockMarginMs: CLOCK_MARGIN_MS,
    };
    this.catchUp();
  }

  readonly #timeStep: TimeStep = async (step, work) => {
    this.steps.push(step);
    return await work();
  };

  /** The first partition, which most tests use. */
  get copy(): LedgerPartition {
    return this.partitions[0] as LedgerPartition;
  }

  /** Lets the reader read to the end. */
  catchUp(): void {
    for (const { partition } of this.partitions) this.reader.catchUp(partition);
  }

  /** Serves a batch of a request partition; rejects as the pipeline does. */
  async serve(records: readonly RequestRecord[], partition = 0, isCurrent = () => true): Promise<void> {
    const resolved = (offset: number) => this.events.push(`resolved ${offset}`);
    const { schemas } = this.deps;
    const { homeOf = () => partition } = this.#options;
    const reader = this.deps.reader === this.#ownReader ? readerFor({ schemas, homeOf }) : this.deps.reader;
    await processBatch({ ...this.deps, reader }, partition, records, { isCurrent, resolved });
  }

  /** The replies sent to a topic, decoded. */
  replies(topic = REPLIES): ReplySeen[] {
    return this.publisher.on(topic).map(({ key, value, headers, timestampMs }) => {
      const reply = decodeIdReply(value as Buffer);
      const replayed = headers[DEFAULT_HEADER_NAMES.replayed] !== undefined;
      return { ...reply, id: key?.toString() ?? '', replayed, timestampMs, bytes: value as Buffer };
    });
  }

  #recorded(log: LedgerLog): LedgerLog {
    return {
      append: async (partition, entries) => {
        this.events.push(`append ${entries.length}`);
        const appended = await log.append(partition, entries);
        this.events.push(`appended at ${appended.baseOffset}`);
        return appended;
      },
      endOffset: (partition, known) => {
        this.endsRead += 1;
        return log.endOffset(partition, known);
      },
      requestEnd: (partition, known) => log.requestEnd(partition, known),
    };
  }
}

export type ReplySeen = IdReply & {
  readonly id: string;
  readonly replayed: boolean;
  readonly timestampMs: number | undefined;
  readonly bytes: Buffer;
};

/** A short text for a reply: its ranges, or the code of its error. */
export function gist(reply: ReplySeen): string {
  if ('error' in reply) return reply.error.code;
  const ranges = 'batch' in reply ? reply.batch.ranges : [reply.numbers];
  return ranges.map(({ first, count }) => `${first}+${count}`).join();
}
