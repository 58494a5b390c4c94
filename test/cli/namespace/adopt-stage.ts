import { KafkaLedgerEntries } from '../../../src/adapters/kafka/ledger-log.ts';
import { readSpans } from '../../../src/adapters/kafka/topics/spans.ts';
import type { CliContext } from '../../../src/cli/context.ts';
import { readJournal } from '../../../src/cli/journal/journal-run.ts';
import { adoptCluster } from '../../../src/cli/namespace/adopt-run.ts';
import type { ConfirmFlags } from '../../../src/cli/options.ts';
import { SequenceLog } from '../../../src/cli/sequence/sequence-log.ts';
import type { SequenceSession } from '../../../src/cli/sequence/sequence-session.ts';
import type { JournalEntry } from '../../../src/codec/journal-entry.ts';
import { decodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import { digestEntry } from '../../../src/codec/ledger-key.ts';
import { isAdoption } from '../../../src/codec/request-position.ts';
import type { Config } from '../../../src/config/config.ts';
import { bindingsOf, ledgerHeadKeys } from '../../../src/identity/bindings.ts';
import { namespaceKeys } from '../../../src/identity/keys.ts';
import type { BrokerLink } from '../../../src/kafka/wire/port.ts';
import type { ListOffsetsRequest, ListOffsetsResponse } from '../../../src/kafka/wire/record-apis.ts';
import { EtcdEndHeads, type StoredEnd } from '../../../src/ledger/end-heads.ts';
import { EtcdHeads, type Head } from '../../../src/ledger/heads.ts';
import type { LedgerRecord } from '../../../src/ledger/ledger-ports.ts';
import type { Fault } from '../../identity/fake-etcd.ts';
import { recordsOf } from '../../support/fake-kafka/batches.ts';
import { HOME, KEYS, LEDGER, OrderStage, REQUESTS, TOPICS } from '../sequence/order-stage.ts';

const CONFIG = {
  etcd: { prefix: '/ids' },
  datacenterId: 0,
  idSpace: 'default',
  groupId: 'ids',
  topics: { ...TOPICS, requestPartitions: 1 },
} as unknown as Config;
const NAMES = namespaceKeys('/ids', 0);
export const OLD = 'fake-kafka';
export const NEW = 'another-kafka';

/**
 * `idalloc namespace adopt-cluster` over simulated brokers and an etcd in memory, which remembers a ledger of one
 * partition.
 */
export class AdoptStage extends OrderStage {
  /** Everything but reads of Kafka: what happens to a call; `undefined` lets it pass. */
  fault: (of: 'append' | 'etcd') => Fault | undefined = () => undefined;
  /** How often the end of the request topic is reported as by a leader that was deposed before the last requests. */
  deposed = 0;
  out = '';
  err = '';
  answers: Partial<CliContext> = {};

  constructor() {
    super();
    this.link = async () => ({ fault: this.fault('etcd') ?? 'pass' });
    const { cluster } = this.loop;
    const call = cluster.call.bind(cluster);
    cluster.call = (node, purpose, timeoutMs, use) =>
      call(node, purpose, timeoutMs, (link) => use(this.#failing(link)));
  }

  #failing(link: BrokerLink): BrokerLink {
    const call: BrokerLink['call'] = async (api, request) => {
      const fault = api === 'produce' ? this.fault('append') : undefined;
      if (fault === 'request lost') throw new RangeError('killed');
      const answer = await link.call(api, request);
      if (
        api === 'listOffsets' &&
        this.deposed > 0 &&
        (request as ListOffsetsRequest).partitions[0]?.topic === REQUESTS
      ) {
        this.deposed -= 1;
        const { partitions } = answer as ListOffsetsResponse;
        return { ...answer, partitions: partitions.map((one) => ({ ...one, offset: 5 })) };
      }
      if (fault !== undefined) throw new RangeError('killed');
      return answer;
    };
    return { ended: link.ended, close: () => link.close(), call };
  }

  /** Of ten requests etcd knows those up to 7 as decided, two by numbers, the second of which is pending as well. */
  async decides(): Promise<void> {
    this.requests(10);
    await this.create('invoices');
    this.appendsOther(5);
    for (const [first, by] of [
      [1, 'a'],
      [2, 'b'],
    ] as const) {
      // biome-ignore format: two drafts
      await this.swapsIn('invoices', [{ first, by }]);
      this.appends('invoices', { first, by, end: this.end, through: 7 });
    }
    await this.raises();
    this.binds(OLD);
  }

  binds(clusterId: string): void {
    const { cluster } = bindingsOf(NAMES, { ...CONFIG, clusterId });
    this.etcd.tamper(cluster?.key ?? '', Buffer.from(clusterId));
  }

  get bound(): string | undefined {
    const { cluster } = bindingsOf(NAMES, { ...CONFIG, clusterId: NEW });
    return this.etcd.peek(cluster?.key ?? '')?.value.toString();
  }

  /** Some process holds a worker ID. */
  holds(): void {
    const record = { assigned_worker_ip: '192.0.2.7', lease_ttl_seconds: 30, heartbeat_token: 'x' };
    const value = JSON.stringify({ ...record, granted_at: '2026-01-01T00:00:00.000Z' });
    this.etcd.tamper(NAMES.owner(3), Buffer.from(value));
  }

  /** An owner tells etcd how far the ledger has gone. */
  async raises(): Promise<void> {
    const entries = new KafkaLedgerEntries({ cluster: this.loop.cluster, runtime: this.loop.runtime, topic: LEDGER });
    const at = this.end - 1;
    const found = await this.loop.runtime.until(entries.read(HOME, [at]));
    const last = found.get(at) as LedgerRecord;
    const head = { end: this.end, digest: digestEntry(last), through: 7, time: last.appendedAtMs, life: 0 };
    await this.#ends.swap([{ partition: HOME, revision: 0n, head }]);
  }

  get #ends(): EtcdEndHeads {
    return new EtcdEndHeads(this.etcd.port(), () => KEYS.end);
  }

  async storedEnd(): Promise<StoredEnd> {
    return (await this.#ends.read([HOME])).get(HOME) as StoredEnd;
  }

  storedHead(): Promise<Head> {
    return new EtcdHeads({ etcd: this.etcd.port(), keysOf: () => KEYS }).read(HOME, ['invoices']);
  }

  /** The markers in the ledger: offset, stated end, and request; and whether it is an adoption. */
  get markers(): readonly string[] {
    const records = this.loop.kafka.cluster.partition(LEDGER, HOME).log.batches().flatMap(recordsOf);
    return records.flatMap(({ offset, key = null, value, headers }) => {
      const record = { offset, key, headers: headers as LedgerRecord['headers'] };
      const { kind, end, through } = decodeLedgerEntry(value as Buffer, record.headers);
      return kind === 'marker' ? [`${offset}: ${end} ${through}${isAdoption(record) ? ' adopts' : ''}`] : [];
    });
  }

  damagesEnd(): void {
    this.etcd.tamper(KEYS.end, Buffer.from('junk'));
  }

  /** From now on the brokers are another cluster's, whose topics have these of the entries, and so many requests. */
  isReplaced(from = 0, to = 0, requests = 0): void {
    const { cluster } = this.loop.kafka;
    const records = cluster
      .partition(LEDGER, HOME)
      .log.batches()
      .flatMap((batch) => recordsOf(batch));
    cluster.replace(NEW);
    for (const { offset, key, value, headers } of records)
      if (offset >= from && offset < to) cluster.send(LEDGER, HOME, [{ key, value, headers: headers ?? {} }]);
    if (requests > 0) this.requests(requests);
  }

  /** Likewise, of a mirror that lags. */
  lags(entries: number): void {
    this.isReplaced(0, entries, 10);
  }

  /** Runs the command; `out` and `err` are what it prints. */
  adopt(flags: ConfirmFlags = { yes: true, json: true }): Promise<void> {
    this.out = '';
    this.err = '';
    return this.loop.runtime.until(adoptCluster(this.session(), flags));
  }

  /** The commands that the journal has. */
  async journal(): Promise<readonly (JournalEntry | undefined)[]> {
    return (await readJournal(this.session())).map(({ entry }) => entry);
  }

  get json(): unknown {
    return JSON.parse(this.out);
  }

  /** A command that is connected to both. */
  session(): SequenceSession {
    const source = { cluster: this.loop.cluster, runtime: this.loop.runtime };
    const { signal } = new AbortController();
    const log = new SequenceLog({
      source,
      topics: TOPICS,
      partitions: 1,
      read: (spans, take) => readSpans(source, spans, { signal, take }),
    });
    const context = {
      stop: signal,
      who: () => 'alice@host',
      now: () => this.loop.runtime.wallMs(),
      out: (text: string) => {
        this.out += text;
      },
      err: (text: string) => {
        this.err += text;
      },
      terminal: { input: false, output: false, errors: false },
      ...this.answers,
    } as unknown as CliContext;
    const etcd = this.etcd.port((name) => this.link(name)) as SequenceSession['etcd'];
    const keysOf = (partition: number) => ledgerHeadKeys('/ids', 0, LEDGER, partition);
    return { context, config: CONFIG, source, etcd, log, heads: this.heads, namespace: this.namespace, keysOf };
  }
}
