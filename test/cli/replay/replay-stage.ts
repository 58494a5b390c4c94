import { committedOffsets } from '../../../src/adapters/kafka/consumer-group.ts';
import { caughtUp, type Prospect, prospectOf, setBack } from '../../../src/cli/replay/group.ts';
import { requireAnswered } from '../../../src/cli/replay/plan.ts';
import { planOf, type ReplayOptions } from '../../../src/cli/replay/replay-run.ts';
import { ledgerWriter } from '../../../src/cli/sequence/sequence-session.ts';
import {
  encodeMetadata,
  type LastRead,
  REPLAY_HEADER,
  readOf,
  readReplay,
  replayRecord,
} from '../../../src/codec/request-position.ts';
import { loadKafkaConfig } from '../../../src/config/config.ts';
import type { KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { BrokerLink } from '../../../src/kafka/wire/port.ts';
import { headOf, recordsOf } from '../../support/fake-kafka/batches.ts';
import { LoopStage } from '../../support/loop-stage.ts';

const config = loadKafkaConfig({ KAFKA_BROKERS: 'b:1', REQUEST_PARTITIONS: '2', BROKER_CLOCK_MARGIN_MS: '1000' });
const { requests, ledger } = config.topics;
const VALUE = Buffer.from('a request');

/** `idalloc replay` over simulated brokers: two request partitions with a ledger, and one that was added. */
export class ReplayStage {
  readonly loop = new LoopStage({ nodes: 1 });
  /** What was done that others see, in order. */
  readonly done: string[] = [];
  /** Called before each call of the command. */
  onCall: (api: string) => void = () => undefined;

  constructor() {
    const { kafka, cluster } = this.loop;
    const configs = { 'message.timestamp.type': 'LogAppendTime' };
    kafka.cluster.createTopic(requests, { partitions: 3, replicas: 1, configs });
    kafka.cluster.createTopic(ledger, { partitions: 2, replicas: 1, configs });
    kafka.cluster.groups.coordinatorOf(config.groupId, 1);
    kafka.cluster.groups.onCommit = ({ partitions }) => {
      for (const { partition, offset, metadata } of partitions) this.done.push(`${partition} at ${offset} ${metadata}`);
    };
    const call = cluster.call.bind(cluster);
    cluster.call = (node, purpose, timeoutMs, use) =>
      call(node, purpose, timeoutMs, (link) => use(this.#watched(link)));
  }

  #watched(link: BrokerLink): BrokerLink {
    const call: BrokerLink['call'] = (api, request) => {
      this.onCall(api);
      return link.call(api, request);
    };
    return { ended: link.ended, close: () => link.close(), call };
  }

  requests(partition: number, count: number, value = VALUE): void {
    const records = Array.from({ length: count }, () => ({ key: null, value }));
    this.loop.kafka.cluster.send(requests, partition, records);
  }

  /**
   * Workers have answered all requests of a partition, the last of which came in a dense batch. They have read its
   * checksum alone.
   */
  answeredDense(partition: number): void {
    const [batch] = this.loop.kafka.cluster.partition(requests, partition).log.batches().slice(-1);
    if (batch === undefined) throw new RangeError('there is no batch');
    const { lastOffset: offset, maxTimestampMs: timestampMs } = headOf(batch);
    const last = readOf({ offset, timestampMs, key: null, value: batch.subarray(17, 21) });
    this.commits(partition, offset + 1, encodeMetadata({ next: offset + 1, small: offset + 1, last }));
  }

  /** Workers have answered so much; `small`: except for large requests from `next` on. */
  answered(partition: number, next: number, small = next): void {
    this.commits(partition, next, encodeMetadata({ next, small, last: this.#lastBelow(partition, small) }));
  }

  /** The record before this offset, as a worker names it. */
  #lastBelow(partition: number, end: number): LastRead | undefined {
    const records = this.loop.kafka.cluster.partition(requests, partition).log.batches().flatMap(recordsOf);
    const record = records.find(({ offset }) => offset === end - 1);
    return record && readOf(record);
  }

  /** The request partition loses its tail, in an unclean election. */
  loses(partition: number, from: number): void {
    this.loop.kafka.cluster.truncate(requests, partition, from);
  }

  /** Behind the same addresses there is now another cluster, with copies of both topics and of the offsets. */
  isReplaced(): void {
    const { cluster } = this.loop.kafka;
    cluster.replace('another-kafka');
    cluster.groups.coordinatorOf(config.groupId, 1);
    for (const partition of [0, 1]) {
      this.requests(partition, 10);
      this.answered(partition, 8);
    }
  }

  commits(partition: number, offset: number, metadata = ''): void {
    const { groups } = this.loop.kafka.cluster;
    const { groupId } = config;
    groups.commit({
      groupId,
      generation: -1,
      memberId: '',
      partitions: [{ topic: requests, partition, offset, metadata }],
    });
    this.done.pop();
  }

  states(partition: number, below: number | string): void {
    const { end } = this.loop.kafka.cluster.partition(ledger, partition).log;
    const record = replayRecord(typeof below === 'string' ? 0 : below, end);
    const headers = typeof below === 'string' ? { [REPLAY_HEADER]: below } : record.headers;
    this.loop.kafka.cluster.send(ledger, partition, [{ ...record, headers }]);
  }

  /** Entries of which the command must not think anything. */
  entries(partition: number, count: number): void {
    const records = Array.from({ length: count }, () => ({ key: Buffer.from('x'), value: Buffer.from('y') }));
    this.loop.kafka.cluster.send(ledger, partition, records);
  }

  /** The next appends to the ledger are refused. */
  refuses(errorCode: KafkaErrorCode): void {
    this.loop.kafka.cluster.refuses = (call) => (call === 'produce' ? errorCode : undefined);
  }

  get statements(): readonly string[] {
    return [0, 1].flatMap((partition) => {
      const records = this.loop.kafka.cluster.partition(ledger, partition).log.batches().flatMap(recordsOf);
      return records.flatMap(({ offset, key, headers }) => {
        const below = readReplay({ offset, key: key ?? null, headers: headers ?? {} });
        return below === undefined ? [] : [`${partition}: ${below}`];
      });
    });
  }

  get #tools() {
    const { cluster, runtime } = this.loop;
    return { source: { cluster, runtime }, config, context: { stop: new AbortController().signal } };
  }

  prospect(from = 0): Promise<Prospect> {
    return this.loop.runtime.until(prospectOf(this.#tools, () => from, 0));
  }

  /** The command from its plan to the reset of the offsets. */
  replay({ decideRefused = false, from = 0 } = {}): Promise<Prospect> {
    const { source } = this.#tools;
    const { cluster, runtime } = this.loop;
    const work = async () => {
      const prospect = await prospectOf(this.#tools, () => from, 0);
      requireAnswered(prospect.plan, decideRefused);
      const plan = decideRefused ? prospect.plan.map((one) => ({ ...one, below: 0 })) : prospect.plan;
      const log = ledgerWriter({ cluster, runtime }, config.topics);
      const append: typeof log.append = async (partition, records) => {
        const appended = await log.append(partition, records);
        this.done.push(`stated ${partition}`);
        return appended;
      };
      await setBack(source, config, { ...prospect, plan }, { append });
      return prospect;
    };
    return this.loop.runtime.until(work());
  }

  /** What the command plans with these options, and what it says meanwhile. */
  async plans(
    options: Partial<ReplayOptions>,
  ): Promise<{ readonly offsets: readonly number[]; readonly said: string }> {
    let said = '';
    const err = (text: string) => {
      said += text;
    };
    const session = { ...this.#tools, options, context: { ...this.#tools.context, err } };
    const { plan } = await this.loop.runtime.until(planOf(session as unknown as Parameters<typeof planOf>[0]));
    return { offsets: plan.map(({ from }) => from), said };
  }

  /** The wait for workers to read partition 0 up to this offset; returns how much was left, look by look. */
  async waits(to: number, signal = new AbortController().signal): Promise<readonly number[]> {
    const left: number[] = [];
    const due = [{ partition: 0, from: 0, to }];
    const tools = { ...this.#tools, context: { stop: signal } };
    await this.loop.runtime.until(caughtUp(tools, due, 60_000, (now) => left.push(now)));
    return left;
  }

  /** The committed offsets of both partitions that have a ledger. */
  async offsets(): Promise<readonly (number | undefined)[]> {
    const found = await this.loop.runtime.until(committedOffsets(this.#tools.source, config.groupId, requests, [0, 1]));
    return [0, 1].map((partition) => found.get(partition)?.offset);
  }
}
