import { PartitionReading } from '../../src/cli/sequence/sequence-log.ts';
import type { PendingNumbers } from '../../src/codec/head-values.ts';
import type { Statement } from '../../src/core/sequence-row.ts';
import { IdallocError } from '../../src/errors.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import { EtcdHeads } from '../../src/ledger/heads.ts';
import type { NewEntry } from '../../src/ledger/ledger-ports.ts';
import { type Change, carryOut, type OrderLog } from '../../src/ledger/sequence-order.ts';
import { batchOf, type PlainRecord, recordsOf } from '../support/fake-kafka/batches.ts';
import type { Surroundings } from './host.ts';
import { Machine, type Process } from './machine.ts';
import { OPERATOR } from './operator.ts';
import { FIRST, homeOf } from './pairs.ts';
import { DATACENTER, NO_NAMESPACE, PREFIX, SEQUENCE, SEQUENCES } from './setting.ts';

/** How often a command that creates a sequence is given again, and how long a call of one takes. */
const CREATE_MS = 1_000;
const CALL_MS = 5;
/** The share of commands that are killed, and within which time; and of their appends that arrive late. */
const KILLED = 0.15;
const KILLED_MS = 40;
const LATE = 0.1;
const LATE_MS = { from: 500, to: 8_000 } as const;
/** The share of orders that close a sequence. */
const CLOSING = 0.03;
/** Errors after which the order is not known to have taken effect, or did not. */
const EXPECTED = new Set([
  'OVERTAKEN',
  'ETCD_UNAVAILABLE',
  'ETCD_REFUSED',
  'APPEND_UNANSWERED',
  'SEQUENCE_STOPPED',
  'CONFLICT',
  // The request topic has lost its tail, or belongs to another cluster: the order waits until that is adopted, or has
  // as many again.
  'REQUESTS_RECREATED',
]);

/**
 * The operator of sequences: each command runs the real code in a process of its own, over the true log, and may be
 * killed in the middle.
 */
export class SequenceOperator {
  readonly #around: Surroundings;
  readonly #machine: Machine;

  constructor(around: Surroundings) {
    this.#around = around;
    this.#machine = new Machine(around.world, `${OPERATOR}-of-sequences`);
    for (const name of SEQUENCES) this.#create(name);
  }

  /** Changes a sequence: announces a gap, changes its step, or closes it. */
  change(): void {
    const { rng } = this.#around.world;
    const name = rng.pick(SEQUENCES);
    const [closes, restarts, by] = [rng.chance(CLOSING), rng.chance(0.5), 1 + rng.below(20)];
    this.#order(name, (now) => {
      if (now === undefined || now.closed) throw new IdallocError('CONFLICT', 'it is closed, or not there');
      if (closes) return { ...now, closed: true };
      if (restarts) return { ...now, next: Math.min(now.next + by, now.max + now.step) };
      return { ...now, step: now.step + (by % 3) };
    });
  }

  /** Gives the command again until the sequence is there. */
  #create(name: string): void {
    const { world, history } = this.#around;
    if (history.statements.some(({ sequence }) => sequence === name)) return;
    this.#order(name, (now) => {
      if (now !== undefined) throw new IdallocError('CONFLICT', 'it is there');
      return SEQUENCE;
    });
    world.after(CREATE_MS, () => this.#create(name));
  }

  #order(sequence: string, change: Change): void {
    const { world, store, history } = this.#around;
    const { rng } = world;
    const process = this.#machine.start();
    if (rng.chance(KILLED)) world.after(rng.between(0, KILLED_MS), () => process.crash());
    const etcd = store.port(process, () => () => {});
    const keysOf = (partition: number) => ledgerHeadKeys(PREFIX, DATACENTER, FIRST.ledger, partition);
    const partition = homeOf(sequence, FIRST);
    const options = {
      heads: new EtcdHeads({ etcd, keysOf }),
      log: new TrueLog(this.#around, process, partition),
      partition,
      sequence,
      namespace: store.namespace ?? NO_NAMESPACE,
      runtime: { sleep: process.sleep },
    };
    carryOut(options, change).then(
      ({ known }) => {
        world.note(() => `${process.name}: ${sequence} is ${shown(known)}`);
        process.crash();
      },
      (error: unknown) => {
        world.note(() => `${process.name}: ${error}`);
        if (!(error instanceof IdallocError) || !EXPECTED.has(error.code)) history.defects.push(String(error));
        process.crash();
      },
    );
  }
}

function shown({ next, step, closed, edition }: Statement): string {
  return `edition ${edition}, next ${next} by ${step}${closed ? ', closed' : ''}`;
}

/** The home partition of a sequence as it is, read by a command that no broker deceives. */
class TrueLog implements OrderLog {
  readonly #around: Surroundings;
  readonly #process: Process;
  readonly #partition: number;
  readonly #clusterId: string;
  #watched: readonly PendingNumbers[] = [];
  #reading: PartitionReading;

  constructor(around: Surroundings, process: Process, partition: number) {
    this.#around = around;
    this.#process = process;
    this.#partition = partition;
    this.#clusterId = around.brokers.cluster.clusterId;
    this.#reading = this.#read();
  }

  async readOn(): Promise<void> {
    await this.#process.sleep(CALL_MS);
    this.#requireSameCluster();
    this.#reading = this.#read();
  }

  async readWhole(pending: readonly PendingNumbers[]): Promise<void> {
    this.#watched = pending;
    await this.readOn();
  }

  get reading(): PartitionReading {
    return this.#reading;
  }

  append(records: readonly NewEntry[]): Promise<void> {
    const { world, brokers } = this.#around;
    const { rng } = world;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const isLate = rng.chance(LATE);
    const unanswered = () => reject(new IdallocError('APPEND_UNANSWERED', 'no answer'));
    if (isLate) this.#process.after(LATE_MS.from, unanswered);
    world.after(isLate ? rng.between(LATE_MS.from, LATE_MS.to) : CALL_MS, () => {
      const { cluster } = brokers;
      const at = brokers.partition('ledger', this.#partition);
      const isUp = cluster.brokers.get(at.leadership.leader)?.state === 'up';
      if (!isUp || cluster.clusterId !== this.#clusterId) return this.#process.deliver(unanswered);
      const batch = batchOf(records as readonly PlainRecord[], { timestampMs: brokers.nowMs() });
      cluster.sendBatch(at.topic, at.number, batch, (errorCode) =>
        this.#process.deliver(() => (errorCode === undefined ? resolve() : unanswered())),
      );
    });
    return promise;
  }

  async requestEnd(known: number): Promise<number> {
    await this.#process.sleep(CALL_MS);
    this.#requireSameCluster();
    return Math.max(known, this.#around.brokers.bounds('requests', this.#partition).high);
  }

  #read(): PartitionReading {
    const { log, highWatermark } = this.#around.brokers.partition('ledger', this.#partition);
    const span = { partition: this.#partition, from: log.start };
    const reading = new PartitionReading(span, { isWhole: true, watched: this.#watched });
    const records = log.batches(log.start, highWatermark).flatMap(recordsOf);
    for (const { offset, key = null, value = null, headers = {}, timestampMs } of records) {
      if (offset < log.start || offset >= highWatermark) continue;
      reading.take({ partition: this.#partition, offset, key, value, headers, timestampMs } as never, undefined);
    }
    reading.end = highWatermark;
    return reading;
  }

  #requireSameCluster(): void {
    if (this.#around.brokers.cluster.clusterId === this.#clusterId) return;
    throw new IdallocError('APPEND_UNANSWERED', 'the cluster was replaced');
  }
}
