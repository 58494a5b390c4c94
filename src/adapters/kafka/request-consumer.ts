import type { Consumer, ConsumerEndBatchProcessEvent, EachBatchPayload, Kafka, KafkaMessage } from 'kafkajs';
import { describeError, IdallocError } from '../../errors.ts';
import type { Log } from '../../log.ts';
import type { RequestRecord } from '../../pipeline/ports.ts';
import { GroupConsumer } from './group-consumer.ts';
import { safeOffset } from './ledger-log.ts';
import { Patience, Session } from './session.ts';

/** Works on records of one partition; resolves parts as they are answered, rejects on a passing fault. */
export type RequestHandler = (
  partition: number,
  records: readonly RequestRecord[],
  control: { readonly isCurrent: () => boolean; readonly resolved: (offset: number) => void },
) => Promise<void>;

export interface RequestConsumerOptions {
  readonly kafka: Kafka;
  readonly topic: string;
  readonly groupId: string;
  readonly concurrency: number;
  readonly commitIntervalMs: number;
  /** How long leaving waits for the batches in hand. */
  readonly drainTimeoutMs: number;
  readonly sleep: (delayMs: number, signal: AbortSignal) => Promise<void>;
  readonly handler: RequestHandler;
  readonly log: Log;
  /** Joined, with so many partitions. */
  readonly onJoin: (partitions: readonly number[]) => void;
  /** Records of the partition that wait behind the one answered last. */
  readonly onLag: (partition: number, records: number) => void;
  /** The consumer ended and will not start again by itself: make a new one. */
  readonly onCrash: (error: Error) => void;
}

const HEARTBEAT_MS = 3_000;
/** While a handler waits, kafkajs sends no heartbeat of its own. */
const WAITING_HEARTBEAT_MS = 1_000;
/** After a fault a partition rests before its requests come again; longer when nothing will mend by itself. */
const REST_MS = { retryable: 200, lasting: 5_000 } as const;
const MAX_WAIT_MS = 100;
/** 1 MiB: two of the largest record batches that the request topic takes would not help, one must fit. */
const MAX_BYTES_PER_PARTITION = 1_048_576;

/** Its first offset is null where nothing was fetched, which kafkajs' types leave out. */
type BatchEnd = Omit<ConsumerEndBatchProcessEvent['payload'], 'firstOffset'> & { readonly firstOffset: string | null };

/** How a handler ended: a passing fault may be over soon, a lasting one needs somebody. */
type Outcome = 'well' | 'retryable' | 'lasting';

/** The request topic's consumer group membership, from joining to leaving. */
export class RequestConsumer {
  readonly #options: RequestConsumerOptions;
  readonly #group: GroupConsumer;
  readonly #consumer: Consumer;
  readonly #sessions = new Map<number, Session>();
  /** What rests after a fault: until the timer ends, to go on from where its batch came from. */
  readonly #rests = new Map<Session, { readonly timer: NodeJS.Timeout; readonly from: number }>();
  #commitTimer: NodeJS.Timeout | undefined;
  #committing: Promise<void> | undefined;
  #open = true;
  #stopping = false;

  constructor(options: RequestConsumerOptions) {
    this.#options = options;
    const { kafka, topic, groupId, concurrency } = options;
    this.#group = new GroupConsumer({
      kafka,
      topic,
      config: {
        groupId,
        heartbeatInterval: HEARTBEAT_MS,
        maxWaitTimeInMs: MAX_WAIT_MS,
        maxBytesPerPartition: MAX_BYTES_PER_PARTITION,
        // The brokers fill a fetch in the order of its partitions, which is always the same: the last ones would wait
        // until the first ones have nothing left.
        maxBytes: concurrency * MAX_BYTES_PER_PARTITION,
      },
      onJoin: (partitions) => this.#joined(partitions),
      onInterrupted: () => this.#endSessions(),
      // The coordinator has this member, so what interrupted a session has passed.
      onHeartbeat: () => {
        for (const session of this.#sessions.values()) session.interrupted = false;
      },
      onCrash: (error) => {
        if (!this.#stopping) options.onCrash(error);
      },
    });
    this.#consumer = this.#group.consumer;
    this.#consumer.on('consumer.end_batch_process', ({ payload }) => this.#passed(payload));
  }

  async start(): Promise<void> {
    const { concurrency, commitIntervalMs } = this.#options;
    await this.#group.run({
      partitionsConsumedConcurrently: concurrency,
      eachBatch: (payload) => this.#onBatch(payload),
    });
    this.#commitTimer = setInterval(() => void this.#commit(), commitIntervalMs);
  }

  /**
   * Leaves the group, after the parts in hand have ended or the drain time is over. What was answered is committed; what
   * was not comes again to whoever has the partition next.
   */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.pause();
    clearInterval(this.#commitTimer);
    await this.#drain();
    await this.#committing;
    await this.#commit();
    this.#endSessions();
    await this.#group.end();
  }

  /** Takes no more requests; the parts at work end by themselves. */
  pause(): void {
    this.#open = false;
    const partitions = [...this.#sessions.keys()];
    if (partitions.length > 0) this.#consumer.pause([{ topic: this.#options.topic, partitions }]);
  }

  /** Goes on with all but the partitions whose parts are still at work. What a closed gate has refused rests no longer. */
  resume(): void {
    const opens = !this.#open;
    this.#open = true;
    const idle = [...this.#sessions.values()].filter(({ inHand }) => inHand === undefined);
    if (idle.length > 0) this.#resume(idle.map(({ partition }) => partition));
    if (opens) for (const [session, { from }] of [...this.#rests]) this.#goOn(session, from);
  }

  async #drain(): Promise<void> {
    const over = new AbortController();
    const inHand = Promise.all([...this.#sessions.values()].map((session) => session.inHand));
    await Promise.race([inHand, this.#options.sleep(this.#options.drainTimeoutMs, over.signal)]);
    over.abort();
  }

  #joined(partitions: readonly number[]): void {
    if (this.#stopping) return;
    this.#endSessions();
    const { topic } = this.#options;
    for (const partition of partitions) this.#sessions.set(partition, new Session(partition));
    if (partitions.length > 0) {
      if (this.#open) this.#resume(partitions);
      else this.#consumer.pause([{ topic, partitions: [...partitions] }]);
    }
    this.#options.onJoin(partitions);
  }

  #endSessions(): void {
    for (const session of this.#sessions.values()) session.current = false;
    this.#sessions.clear();
    for (const { timer } of this.#rests.values()) clearTimeout(timer);
    this.#rests.clear();
  }

  /** Never throws for a passing fault, and never waits without end: kafkajs would stop fetching for everybody. */
  async #onBatch(payload: EachBatchPayload): Promise<void> {
    const session = this.#sessions.get(payload.batch.partition);
    if (session === undefined || session.inHand !== undefined || !this.#open || !payload.isRunning()) return;
    session.commit = payload.commitOffsetsIfNecessary;
    const beating = setInterval(() => {
      payload.heartbeat().catch((error) => {
        // The runner's own heartbeat, right after this handler, meets the same answer and rejoins.
        session.interrupted = true;
        this.#options.log.debug({ error: describeError(error) }, 'heartbeat refused while a batch was in hand');
      });
    }, WAITING_HEARTBEAT_MS);
    try {
      await this.#work(session, payload);
    } finally {
      clearInterval(beating);
    }
  }

  async #work(session: Session, { batch, resolveOffset }: EachBatchPayload): Promise<void> {
    using patience = new Patience();
    const from = safeOffset(batch.messages[0]?.offset ?? '0');
    const last = batch.messages.at(-1)?.offset;
    let outside = false;
    const control = {
      isCurrent: () => session.current && !session.interrupted && this.#open,
      resolved: (offset: number) => {
        if (!session.current) return;
        patience.renew();
        if (!outside) resolveOffset(String(offset));
        // The batch may end with the marker of a transaction, which is not among its messages.
        this.#goneTo(session, String(offset) === last ? batch.lastOffset() : String(offset), batch.highWatermark);
      },
    };
    const work = this.#handle(session, batch.messages.map(toRecord), control);
    const ended = work.then((outcome) => this.#ended(session, outcome, outside, from));
    session.inHand = ended;
    const late = (await Promise.race([work, patience.over])) === 'late';
    if (!late || session.inHand !== ended) return;
    outside = true;
    if (session.current) this.#pause([session.partition]);
  }

  /** All that kafkajs fetched were markers of transactions and aborted records: it goes on behind them by itself. */
  #passed({ partition, batchSize, firstOffset, lastOffset, highWatermark }: BatchEnd): void {
    const session = this.#sessions.get(partition);
    if (session === undefined || session.inHand !== undefined || batchSize > 0 || firstOffset === null) return;
    this.#goneTo(session, lastOffset, highWatermark);
  }

  #goneTo(session: Session, offset: string, highWatermark: string): void {
    session.next = safeOffset(offset) + 1;
    this.#options.onLag(session.partition, Math.max(0, Number(highWatermark) - session.next));
  }

  /** The handler's outcome as a value: after a fault the partition rests. */
  async #handle(
    session: Session,
    records: readonly RequestRecord[],
    control: Parameters<RequestHandler>[2],
  ): Promise<Outcome> {
    try {
      await this.#options.handler(session.partition, records, control);
      return 'well';
    } catch (error) {
      const code = error instanceof IdallocError ? error.code : undefined;
      const lasting = error instanceof IdallocError && !error.retryable;
      this.#options.log[lasting ? 'error' : 'warn'](
        { partition: session.partition, code, error: describeError(error) },
        'requests could not be served and will be tried again',
      );
      return lasting ? 'lasting' : 'retryable';
    }
  }

  /** Lets the partition go on: at once when all went well, after a rest when there was a fault. */
  #ended(session: Session, outcome: Outcome, outside: boolean, from: number): void {
    if (outcome === 'well' && !outside) session.inHand = undefined;
    else if (outcome === 'well') this.#goOn(session, from);
    else if (session.current) {
      this.#pause([session.partition]);
      const timer = setTimeout(() => this.#goOn(session, from), REST_MS[outcome]);
      this.#rests.set(session, { timer, from });
    }
  }

  /** From where the batch came to, which kafkajs does not know when the work ended outside of its loop. */
  #goOn(session: Session, from: number): void {
    clearTimeout(this.#rests.get(session)?.timer);
    this.#rests.delete(session);
    session.inHand = undefined;
    if (!session.current) return;
    const { partition } = session;
    this.#consumer.seek({ topic: this.#options.topic, partition, offset: String(session.next ?? from) });
    if (this.#open) this.#resume([partition]);
  }

  #pause(partitions: readonly number[]): void {
    this.#consumer.pause([{ topic: this.#options.topic, partitions: [...partitions] }]);
  }

  #resume(partitions: readonly number[]): void {
    this.#consumer.resume([{ topic: this.#options.topic, partitions: [...partitions] }]);
  }

  /**
   * Commits what was answered, for current sessions only; a failure is repeated by the next commit. One in flight at a
   * time: an earlier one whose answer is late could otherwise take the offsets back.
   */
  #commit(): Promise<void> {
    this.#committing ??= this.#commitDue().finally(() => {
      this.#committing = undefined;
    });
    return this.#committing;
  }

  async #commitDue(): Promise<void> {
    const { topic, log } = this.#options;
    const due = [...this.#sessions.values()].flatMap((session) =>
      session.next === undefined || session.next === session.committed ? [] : [{ session, next: session.next }],
    );
    const commit = [...this.#sessions.values()].find((session) => session.commit !== undefined)?.commit;
    if (due.length === 0 || commit === undefined) return;
    const partitions = due.map(({ session, next }) => ({ partition: session.partition, offset: String(next) }));
    try {
      await commit({ topics: [{ topic, partitions }] });
      for (const { session, next } of due) session.committed = next;
    } catch (error) {
      log.warn({ error: describeError(error) }, 'offsets were not committed; replies may be sent again');
    }
  }
}

function toRecord(message: KafkaMessage): RequestRecord {
  return {
    offset: safeOffset(message.offset),
    key: message.key,
    value: message.value,
    headers: message.headers ?? {},
    timestampMs: Number(message.timestamp),
  };
}
