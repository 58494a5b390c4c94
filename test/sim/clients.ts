import type { Brokers } from './brokers.ts';
import { hasDense } from './dense.ts';
import type { History, SentRequest } from './history.ts';
import { FIRST, homeOf, type Pair, pairAt, partitionsOf } from './pairs.ts';
import type { Draft } from './recorder.ts';
import { FOREIGN_TOPIC, LATE_REPLY_TOPIC, REPLY_TOPICS, SEQUENCES } from './setting.ts';
import type { World } from './world.ts';

/** Most batches are small; some take many ticks of the small layout. */
const COUNTS = [1, 3, 16, 40, 170] as const;
const REPEAT_MS = 8_000;
/** One of so many seeds has requests with request IDs: the others then show what they showed without. */
const SEEDS_WITH_REQUEST_IDS = 8;
/** In others one of three new requests wants numbers, of one of these sequences. */
const SEQUENCES_EVERY = 3;
/** In seeds with dense batches: so many are. */
const DENSE_SHARE = 0.06;
/** The lifetimes of expiring requests. */
const EXPIRES_MS = { from: -2_000, to: 12_000 } as const;

/** The clients: new requests, repeated ones, and some invalid ones. */
export class Clients {
  readonly #world: World;
  readonly #brokers: Brokers;
  readonly #history: History;
  #names = 0;
  readonly #firstSentMs = new Map<string, number>();
  #tries = 0;
  /** The pairs of topics that clients use. */
  #pairs: readonly Pair[] = [FIRST];
  /** Whether each request is sent to its home partition, outside transactions: then no worker appends requests. */
  isPlain = false;

  constructor(world: World, brokers: Brokers, history: History) {
    this.#world = world;
    this.#brokers = brokers;
    this.#history = history;
  }

  /** From now on clients use only these. */
  moveTo(pairs: readonly Pair[]): void {
    this.#pairs = pairs;
  }

  /** Repeats the request of a correlation ID a few times in the next seconds. */
  repeatSoon(partition: number, correlationId: string, withinMs = REPEAT_MS): void {
    const { rng } = this.#world;
    const before = this.#history.requests.find(
      (one) => one.partition === partition && one.correlationId === correlationId,
    );
    if (before === undefined) return;
    for (let times = rng.below(4); times > 0; times -= 1) {
      this.#world.after(rng.between(0, withinMs), () => this.#send(partition, [this.#again(before, true)]));
    }
  }

  /** One request, or a few together, sometimes in a transaction. */
  send(): void {
    const { rng } = this.#world;
    const dice = rng.next();
    if (dice < 0.03 && !this.isPlain) {
      this.#brokers.resend(this.#anyPartition());
      return;
    }
    const before = dice < 0.4 && this.#history.requests.length > 0 ? rng.pick(this.#history.requests) : undefined;
    const partition = this.#anyPartition();
    const first = before === undefined ? this.#fresh() : this.#again(before, dice < 0.33);
    const more = rng.chance(0.15) ? Array.from({ length: rng.below(6) }, () => this.#fresh()) : [];
    const junk = rng.chance(0.03) ? Array.from({ length: 2 + rng.below(6) }, () => this.#bad()) : [];
    const inTransaction = rng.chance(0.08);
    const isDense = hasDense(this.#world.seed) && rng.chance(DENSE_SHARE);
    if (this.isPlain)
      for (const draft of [first, ...more])
        this.#send(homeOf(draft.sequence ?? draft.correlationId, FIRST), [draft], isDense);
    else this.#brokers.send(partition, [first, ...more, ...junk], { inTransaction, isDense });
  }

  /** A new request, sent to its home partition; `isDense`: among many records that are none. */
  sendTo(partition: number, isDense = false): void {
    let draft = this.#fresh();
    const isElsewhere = () => homeOf(draft.correlationId, pairAt(partition)) !== partition;
    while (draft.sequence !== undefined || isElsewhere()) draft = this.#fresh();
    this.#send(partition, [{ correlationId: draft.correlationId, count: 1, replyTopic: REPLY_TOPICS[0] }], isDense);
  }

  /** A new request for numbers, sent to the partition if that is the home of a sequence. */
  takeNumbersOf(partition: number): void {
    const sequence = SEQUENCES.find((name) => homeOf(name, FIRST) === partition);
    if (sequence === undefined) return;
    const { correlationId } = this.#fresh();
    this.#send(partition, [{ correlationId, sequence, count: 1, replyTopic: REPLY_TOPICS[0] }]);
  }

  /** Requests for numbers of each sequence, again and again, about so far apart, until it is over. */
  takeNumbersUntil(isOver: () => boolean, apartMs: number): void {
    this.#world.after(this.#world.rng.between(0, 2 * apartMs), () => {
      if (isOver()) return;
      for (const partition of partitionsOf(FIRST)) this.takeNumbersOf(partition);
      this.takeNumbersUntil(isOver, apartMs);
    });
  }

  #anyPartition(): number {
    return this.#world.rng.pick(this.#pairs.flatMap(partitionsOf));
  }

  #send(partition: number, drafts: readonly Draft[], isDense = false): void {
    if (this.#pairs.includes(pairAt(partition))) this.#brokers.send(partition, drafts, { isDense });
  }

  #fresh(): Draft {
    this.#names += 1;
    const correlationId = `c${this.#names}`;
    this.#firstSentMs.set(correlationId, this.#brokers.nowMs());
    const wantsNumbers = this.#world.hasSequences && this.#names % SEQUENCES_EVERY === 0;
    const sequence = wantsNumbers ? this.#world.rng.pick(SEQUENCES) : undefined;
    return { ...this.#named(correlationId), ...this.#demand(), ...(wantsNumbers && { sequence }) };
  }

  /** In some simulations two of three clients can't choose their correlation IDs, so that they send a request ID. */
  #named(correlationId: string): Pick<Draft, 'correlationId' | 'triedAs'> {
    if (this.#world.seed % SEEDS_WITH_REQUEST_IDS !== 0 || Number(correlationId.slice(1)) % 3 === 0)
      return { correlationId };
    this.#tries += 1;
    return { correlationId, triedAs: `t${this.#tries}` };
  }

  /** A new request that becomes a dead letter. */
  #bad(): Draft {
    return { ...this.#fresh(), replyTopic: FOREIGN_TOPIC };
  }

  /**
   * The same request, or one that abuses the correlation ID of another. Half of the clients say when they sent it
   * first.
   */
  #again({ correlationId, sequence, count, replyTopic, expiresAtMs }: SentRequest, isSame: boolean): Draft {
    const wanted = { ...this.#named(correlationId), ...(sequence !== undefined && { sequence }) };
    if (!isSame) return { ...wanted, ...this.#demand() };
    const says = Number(correlationId.slice(1)) % 2 === 0;
    const firstSentMs = says ? this.#firstSentMs.get(correlationId) : undefined;
    return { ...wanted, count, replyTopic, expiresAtMs, firstSentMs };
  }

  #demand(): Omit<Draft, 'correlationId' | 'triedAs' | 'sequence'> {
    const { rng } = this.#world;
    const dice = rng.next();
    const replyTopic = dice < 0.02 ? FOREIGN_TOPIC : dice < 0.04 ? LATE_REPLY_TOPIC : rng.pick(REPLY_TOPICS);
    const expires = rng.chance(0.08)
      ? { expiresAtMs: this.#brokers.nowMs() + Math.round(rng.between(EXPIRES_MS.from, EXPIRES_MS.to)) }
      : {};
    return { count: rng.pick(COUNTS), replyTopic, ...expires };
  }
}
