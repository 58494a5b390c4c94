import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { DecidedRequest, Found, FoundAnswer, FoundBatch, FoundLetter, FoundRequest, Grouped } from './found.ts';

/** Bits of `flag`. */
const IS_SET = 1;
const IS_RENEWAL = 2;

const KIND = { entry: 0, batch: 1, numbers: 2, answer: 3, death: 4, request: 5 } as const;

/**
 * `place` is the group, and whether a row is no decision. `address` is where replies go, and whether a row is a request. A request has
 * the place where it was first, and a forwarded copy of it the same one: it comes before the request.
 */
const HEAD = 'place, address, kind, topic, part, off, key, corr, time, reply';
const OF_BATCH = 'hash, ranges, flag, term, of_off, of_hash';
const OF_ANSWER = 'count, sequence, code, flag, of_off, of_hash';
const OF_REQUEST = 'first_part, first_off, is_first, reply_part, count, hash, sequence, code, home, flag';
const COLUMNS = `${HEAD}, count, hash, ranges, flag, term, of_off, of_hash, sequence, code, home, reply_part, first_part, first_off, is_first`;

type Bytes = Uint8Array;
type Head = [
  place: number,
  address: number,
  kind: number,
  topic: number,
  partition: number,
  offset: number,
  key: Bytes,
  corr: Bytes | null,
  timeMs: number,
  reply: number | null,
];
type Row = [
  ...Head,
  count: number,
  hash: Bytes,
  ranges: Bytes,
  flag: number,
  term: number | null,
  ofOffset: number | null,
  ofHash: Bytes,
  sequence: string | null,
  code: string | null,
  home: number,
  replyPartition: number | null,
  firstPartition: number,
  firstOffset: number,
  isFirst: number,
];

/** What the tables of a store share. */
export interface StoreTools {
  /** Groups keys. */
  readonly hashOf: (key: Buffer) => number;
  readonly topicNumber: (topic: string) => number;
  readonly topicAt: (number: number) => string;
  /** Called for each row that was written. */
  readonly wrote: () => void;
}

/** Everything that belongs to requests, on disk, and returned together: decisions, replies, dead letters and the requests themselves. */
export class FoundStore {
  readonly #db: DatabaseSync;
  readonly #tools: StoreTools;
  readonly #addBatch: StatementSync;
  readonly #addAnswer: StatementSync;
  readonly #addRequest: StatementSync;
  readonly #addLetter: StatementSync;
  #letters = 0;
  #size = 0;

  constructor(db: DatabaseSync, tools: StoreTools) {
    this.#db = db;
    this.#tools = tools;
    db.exec(`CREATE TABLE found (${COLUMNS});
      CREATE TABLE letter (part, off, time, code, PRIMARY KEY (part, off, time)) WITHOUT ROWID`);
    const insert = (own: string) => {
      const columns = `${HEAD}, ${own}`;
      return db.prepare(`INSERT INTO found (${columns}) VALUES (${columns.replaceAll(/\w+/g, '?')})`);
    };
    this.#addBatch = insert(OF_BATCH);
    this.#addAnswer = insert(OF_ANSWER);
    this.#addRequest = insert(OF_REQUEST);
    this.#addLetter = db.prepare('INSERT OR IGNORE INTO letter VALUES (?, ?, ?, ?)');
  }

  get size(): number {
    return this.#size;
  }

  add(found: FoundBatch | FoundAnswer | FoundRequest): void {
    if (found.kind === 'request') this.#request(found);
    else if (found.kind === 'answer') {
      const { count = null, sequence = null, code = null, of } = found;
      const head = this.#head(found, found.source === 'ledger' ? KIND.numbers : KIND.answer);
      this.#addAnswer.run(...head, count, sequence, code, flagsOf(false, of), of?.offset ?? null, of?.hash ?? null);
    } else {
      const { digest, ranges, doubtful, again, term = null, of } = found;
      const flag = flagsOf(doubtful === true || again === true, of);
      const head = this.#head(found, found.source === 'ledger' ? KIND.entry : KIND.batch);
      this.#addBatch.run(...head, digest, ranges, flag, term, of?.offset ?? null, of?.hash ?? null);
    }
    this.#size += 1;
    this.#tools.wrote();
  }

  addLetter({ partition, offset, recordMs, code }: FoundLetter): void {
    this.#addLetter.run(partition, offset, recordMs ?? -1, code);
    this.#letters += 1;
    this.#tools.wrote();
  }

  /**
   * All in groups, numbered by `group`. What one ID names is in one group, perhaps with a few others. Decisions come first in each group.
   * Then, for each address of replies, come its replies and dead letters, and then its requests, a forwarded copy before the request
   * itself. Otherwise there is no order.
   */
  *grouped(): Generator<Grouped> {
    if (this.#letters > 0) this.#joinLetters();
    const select = this.#db.prepare(
      `SELECT ${COLUMNS} FROM found ORDER BY place, address, first_part, first_off, is_first`,
    );
    select.setReturnArrays(true);
    for (const row of select.iterate() as Iterable<unknown>) {
      const [place, address] = row as Row;
      yield { group: Math.floor(place / 2), address: Math.floor(address / 2), ...this.#found(row as Row) };
    }
  }

  /** A letter says which record it is about, not what names the request. */
  #joinLetters(): void {
    this.#letters = 0;
    this.#db.exec(`INSERT INTO found (${HEAD}, count, code)
      SELECT f.place, f.address - 1, ${KIND.death}, f.topic, f.part, f.off, f.key, f.corr, f.time, f.reply, f.count, l.code
      FROM found f JOIN letter l ON l.part = f.part AND l.off = f.off AND (l.time = -1 OR l.time = f.time)
      WHERE f.kind = ${KIND.request}`);
  }

  #request(found: FoundRequest): void {
    const { partition, offset, origin, replyPartition, count, hash, sequence, rejected, home } = found;
    const first = origin ?? { partition, offset };
    this.#addRequest.run(
      ...this.#head(found, KIND.request),
      ...[first.partition, first.offset, origin === undefined ? 1 : 0, replyPartition ?? null, count, hash],
      ...[sequence ?? null, rejected ?? null, home, found.isResent ? 1 : 0],
    );
  }

  #head(found: FoundBatch | FoundAnswer | FoundRequest, kind: number): Head {
    const { topic, partition, offset, requestId, timeMs, replyTopic, correlationId = requestId } = found;
    const isDecision = found.source === 'ledger';
    const isRejected = found.kind === 'request' && found.rejected !== undefined;
    // What is no request belongs to nothing but its dead letter.
    const group = this.#tools.hashOf(isRejected ? Buffer.from(`${topic}/${partition}/${offset}`) : requestId);
    const isOwn = correlationId.equals(requestId);
    const to = found.kind === 'request' ? (replyTopic ?? '') : topic;
    const address = 2 * this.#addressOf(to, isOwn ? group : this.#tools.hashOf(correlationId));
    return [
      2 * group + (isDecision ? 0 : 1),
      isDecision ? -1 : address + (found.kind === 'request' ? 1 : 0),
      kind,
      this.#tools.topicNumber(topic),
      partition,
      offset,
      requestId,
      isOwn ? null : correlationId,
      timeMs,
      replyTopic === undefined ? null : this.#tools.topicNumber(replyTopic),
    ];
  }

  /** Equal for what goes to one topic under one correlation ID. */
  #addressOf(topic: string, hash: number): number {
    return (hash + 1_000_003 * this.#tools.topicNumber(topic)) % 2 ** 43;
  }

  #found(row: Row): Found {
    const [
      ,
      ,
      kind,
      topic,
      partition,
      offset,
      key,
      corr,
      timeMs,
      reply,
      count,
      hash,
      ranges,
      flag,
      term,
      ofOffset,
      ofHash,
      ...more
    ] = row;
    const [sequence, code, home, replyPartition, firstPartition, firstOffset, isFirst] = more;
    const requestId = blobOf(key);
    const own = { topic: this.#tools.topicAt(topic), partition, offset, requestId, timeMs };
    const replyTopic = reply === null ? undefined : this.#tools.topicAt(reply);
    const correlationId = corr === null ? requestId : blobOf(corr);
    const isSet = (flag & IS_SET) !== 0;
    const isRenewal = (flag & IS_RENEWAL) !== 0;
    const of = ofOffset === null ? undefined : { offset: ofOffset, hash: blobOf(ofHash), isRenewal };
    const batch = () => ({ digest: blobOf(hash), ranges: blobOf(ranges), term: term ?? undefined });
    const answer = { count: count ?? undefined, sequence: sequence ?? undefined, code: code ?? undefined };
    switch (kind) {
      case KIND.entry:
        return { source: 'ledger', ...own, ...batch(), replyTopic, doubtful: isSet, of };
      case KIND.batch:
        return { source: 'reply', ...own, ...batch(), correlationId, again: isSet };
      case KIND.numbers:
        return { kind: 'answer', source: 'ledger', ...own, ...answer, replyTopic, of };
      case KIND.answer:
        return { kind: 'answer', source: 'reply', ...own, ...answer, correlationId };
      case KIND.death:
        return { kind: 'death', source: 'request', ...own, correlationId, count, code: code ?? '' };
      default:
        return {
          kind: 'request',
          source: 'request',
          ...own,
          correlationId,
          replyTopic: replyTopic ?? '',
          replyPartition: replyPartition ?? undefined,
          count,
          hash: blobOf(hash),
          sequence: sequence ?? undefined,
          rejected: code ?? undefined,
          home,
          origin: isFirst === 1 ? undefined : { partition: firstPartition, offset: firstOffset },
          isResent: isSet,
        };
    }
  }
}

/** A stored blob. */
export function blobOf({ buffer, byteOffset, byteLength }: Bytes): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

function flagsOf(isSet: boolean, of: DecidedRequest | undefined): number {
  return (isSet ? IS_SET : 0) + (of?.isRenewal === true ? IS_RENEWAL : 0);
}
