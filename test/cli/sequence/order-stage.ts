import { readSpans } from '../../../src/adapters/kafka/topics/spans.ts';
import { stateLosses } from '../../../src/cli/namespace/adopt-run.ts';
import { SequenceLog, sequenceRecord } from '../../../src/cli/sequence/sequence-log.ts';
import { ledgerWriter, orderLog } from '../../../src/cli/sequence/sequence-session.ts';
import { type SequenceView, viewSequence } from '../../../src/cli/sequence/sequence-view.ts';
import type { PendingNumbers } from '../../../src/codec/head-values.ts';
import { encodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import { encodeNumbersKey, encodeStatementKey } from '../../../src/codec/ledger-key.ts';
import { statementHeaders } from '../../../src/codec/sequence-entry.ts';
import type { SequenceRow, Statement } from '../../../src/core/sequence-row.ts';
import { ledgerHeadKeys } from '../../../src/identity/bindings.ts';
import { EtcdHeads } from '../../../src/ledger/heads.ts';
import { type Change, carryOut, type OrderOptions, viewOf } from '../../../src/ledger/sequence-order.ts';
import { draftChange } from '../../../src/ledger/sequence-rule.ts';
import { FakeEtcd, goodLink, type Link } from '../../identity/fake-etcd.ts';
import { recordsOf } from '../../support/fake-kafka/batches.ts';
import { LoopStage } from '../../support/loop-stage.ts';

export const LEDGER = 'id.ledger';
export const REQUESTS = 'id.requests';
export const TOPICS = { ledger: LEDGER, requests: REQUESTS, ledgerRetentionMs: 26 * 3_600_000 };
export const KEYS = ledgerHeadKeys('/ids', 0, LEDGER, 0);
const NAMESPACE = '00000000-0000-4000-8000-000000000001';
export const HOME = 0;

export const CREATED = { next: 1, step: 1, max: 1_000, format: '', closed: false };

/** Orders over simulated brokers and an etcd in memory, beside a worker that may do any step. */
export class OrderStage {
  readonly loop = new LoopStage({ nodes: 1 });
  readonly etcd: FakeEtcd;
  /** Of the operator's calls to etcd. */
  link: Link = goodLink;
  namespace = NAMESPACE;
  /** Called before each append of a command. */
  beforeAppend: () => void = () => undefined;

  constructor() {
    const { cluster } = this.loop.kafka;
    this.etcd = new FakeEtcd(() => this.loop.runtime.wallMs());
    const configs = { 'message.timestamp.type': 'LogAppendTime', 'retention.ms': String(TOPICS.ledgerRetentionMs) };
    cluster.createTopic(LEDGER, { partitions: 1, replicas: 1, configs });
    cluster.createTopic(REQUESTS, { partitions: 1, replicas: 1 });
  }

  get heads(): EtcdHeads {
    const etcd = this.etcd.port((name) => this.link(name));
    return new EtcdHeads({ etcd, keysOf: () => KEYS });
  }

  #sequenceLog(): SequenceLog {
    const { cluster, runtime } = this.loop;
    const source = { cluster, runtime };
    const { signal } = new AbortController();
    return new SequenceLog({
      source,
      topics: TOPICS,
      partitions: 1,
      read: (spans, take) => readSpans(source, spans, { signal, take }),
    });
  }

  #orderLog(log: SequenceLog) {
    const { cluster, runtime } = this.loop;
    const home = orderLog(log, ledgerWriter({ cluster, runtime }, TOPICS), HOME);
    const append = home.append;
    home.append = (records) => {
      this.beforeAppend();
      return append(records);
    };
    return home;
  }

  /** What a command does with an order. */
  order(sequence: string, change: Change): Promise<SequenceRow> {
    return this.loop.runtime.until(this.orderMeanwhile(sequence, change));
  }

  /** Likewise, while another command runs. */
  async orderMeanwhile(sequence: string, change: Change): Promise<SequenceRow> {
    return await carryOut(await this.#options(sequence), change);
  }

  /** What `namespace adopt-cluster` does for the sequences of a partition. */
  statesLosses(): Promise<void> {
    const { cluster, runtime } = this.loop;
    const memories = { heads: this.heads, log: this.#sequenceLog() };
    return runtime.until(stateLosses(memories, ledgerWriter({ cluster, runtime }, TOPICS), HOME));
  }

  async #options(sequence: string): Promise<OrderOptions> {
    const { heads, namespace } = this;
    const log = this.#sequenceLog();
    const { sequences } = await heads.read(HOME, [sequence]);
    await log.readHome(HOME, sequence, !sequences.has(sequence));
    const { runtime } = this.loop;
    return { heads, log: this.#orderLog(log), partition: HOME, sequence, namespace, runtime };
  }

  create(sequence: string): Promise<SequenceRow> {
    return this.order(sequence, () => CREATED);
  }

  change(sequence: string, to: Partial<Statement>): Promise<SequenceRow> {
    return this.order(sequence, changeTo(to));
  }

  /** What `sequence show` prints. */
  show(sequence: string): Promise<SequenceView | undefined> {
    const run = async () => {
      const head = await new EtcdHeads({ etcd: this.etcd.port(), keysOf: () => KEYS }).read(HOME, [sequence]);
      const log = this.#sequenceLog();
      await log.readFor(HOME, sequence, head.pending);
      return viewSequence(sequence, { reading: log.reading(HOME), namespace: this.namespace, head });
    };
    return this.loop.runtime.until(run());
  }

  /** A worker swaps numbers in, and does no more. */
  swapsIn(sequence: string, runs: readonly { readonly first: number; readonly by: string }[]): Promise<void> {
    return this.loop.runtime.until(this.swapsInMeanwhile(sequence, runs));
  }

  /** Likewise, while a command runs. */
  async swapsInMeanwhile(
    sequence: string,
    runs: readonly { readonly first: number; readonly by: string }[],
  ): Promise<void> {
    const heads = new EtcdHeads({ etcd: this.etcd.port(), keysOf: () => KEYS });
    const log = this.#sequenceLog();
    await log.readWhole(HOME);
    const head = await heads.read(HOME, [sequence]);
    const view = viewOf({ namespace: this.namespace, sequence }, log.reading(HOME), head);
    const pending = runs.map(({ first, by }) => numbers(sequence, first, by));
    await heads.swap(HOME, head, draftChange(view, pending, 7));
  }

  pass(ms: number): Promise<void> {
    return this.loop.runtime.until(this.loop.runtime.sleep(ms));
  }

  /** A worker appends numbers, or anything else that counts. */
  appends(
    sequence: string,
    { first, by, ...about }: { first: number; by: string; end?: number; through?: number },
  ): void {
    const entry = { ...numbers(sequence, first, by).entry, end: 0, through: -1, at: this.end, ...about };
    this.#append(encodeNumbersKey(sequence, Buffer.from(by)), encodeLedgerEntry(entry));
  }

  /** A worker appends a statement; without an edition, as the version before wrote it. */
  states(sequence: string, next: number, edition = 0): void {
    const first = edition === 0 ? undefined : next;
    const said = { ...CREATED, next, edition, first, isLoss: false };
    const entry = { kind: 'statement', end: 0, through: -1, at: this.end, ...said } as const;
    const headers = edition === 0 ? {} : statementHeaders(entry);
    this.loop.kafka.cluster.send(LEDGER, HOME, [
      { key: encodeStatementKey(sequence), value: encodeLedgerEntry(entry), headers },
    ]);
  }

  /** A marker, whose writer had read nothing, or all of the ledger and so many requests. */
  appendsOther(through = -1): void {
    this.#append(null, encodeLedgerEntry({ kind: 'marker', end: through < 0 ? 0 : this.end, through }));
  }

  get end(): number {
    return this.#log.log.end;
  }

  losesTail(from: number): void {
    this.loop.kafka.cluster.truncate(LEDGER, HOME, from);
  }

  /** Retention takes what is below. */
  trims(low: number): void {
    this.#log.trim(low);
  }

  requests(count: number): void {
    this.loop.send(HOME, count, 1, REQUESTS);
  }

  /**
   * What the ledger has, in short: `o2>1` an order of edition 2 from 1 on, `l2>1~9`: a loss up to request 9, `n1 a`:
   * number 1 of a; a void one in brackets.
   */
  get ledger(): readonly string[] {
    return this.#records.map(({ offset, read }) => {
      if (read === undefined) return '-';
      const { entry, requestId } = read;
      const isVoid = entry.at !== offset;
      const gist =
        entry.kind === 'numbers'
          ? `n${entry.first} ${requestId}`
          : `${entry.isLoss ? 'l' : 'o'}${entry.edition}>${entry.next}${entry.isLoss ? `~${entry.through}` : ''}${entry.closed ? ' closed' : ''}`;
      return isVoid ? `(${gist})` : gist;
    });
  }

  /** Up to which request each record says that its writer knew the decisions. */
  get throughs(): readonly (number | undefined)[] {
    return this.#records.map(({ read }) => read?.entry.through);
  }

  get #records() {
    return this.#log.log.batches().flatMap((batch) =>
      recordsOf(batch).map(({ offset, key, value, headers }) => {
        const bytes = Object.entries(headers ?? {}).map(([name, one]) => [name, Buffer.from(one)]);
        const place = { topic: LEDGER, partition: HOME, offset, timestampMs: 0 };
        return { offset, read: sequenceRecord({ ...place, key, value, headers: Object.fromEntries(bytes) }) };
      }),
    );
  }

  /** What is pending in etcd, likewise. */
  async pending(): Promise<readonly string[]> {
    const { pending } = await new EtcdHeads({ etcd: this.etcd.port(), keysOf: () => KEYS }).read(HOME, []);
    return pending.map((one) =>
      one.kind === 'numbers' ? `n${one.entry.first}` : `o${one.statement.edition}>${one.statement.next}`,
    );
  }

  get #log() {
    return this.loop.kafka.cluster.partition(LEDGER, HOME);
  }

  #append(key: Buffer | null, value: Buffer): void {
    this.loop.kafka.cluster.send(LEDGER, HOME, [{ key, value }]);
  }
}

export function changeTo(to: Partial<Statement>): Change {
  return (now) => {
    if (now === undefined) throw new RangeError('the sequence is unknown');
    return { ...now, ...to };
  };
}

function numbers(sequence: string, first: number, by: string): PendingNumbers {
  return {
    kind: 'numbers',
    sequence,
    key: encodeNumbersKey(sequence, Buffer.from(by)),
    edition: 1,
    entry: {
      kind: 'numbers',
      requestHash: Buffer.alloc(16),
      replyTopic: 'id.replies.orders',
      requestOffset: 7,
      framing: 'SINGLE_OBJECT',
      schemaFingerprint: Buffer.alloc(8),
      first,
      count: 1,
      step: 1,
      format: '',
    },
  };
}
