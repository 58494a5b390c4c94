import type { DriftSample } from '../../src/core/clock-guard.ts';
import { wallMs } from '../../src/core/units.ts';
import { IdallocError } from '../../src/errors.ts';
import type { GuardedClock } from '../../src/guarded-clock.ts';
import type { WitnessPort } from '../../src/identity/ports.ts';
import type { LedgerLog, LedgerRecord, LogBounds, Publisher } from '../../src/pipeline/ports.ts';
import type { LedgerSink } from '../support/memory-ledger.ts';
import type { History } from './history.ts';
import type { Brokers } from './kafka.ts';
import type { Process } from './machine.ts';
import type { Network } from './network.ts';
import type { World } from './world.ts';

const PRODUCE_LIMIT_MS = 10_000;
const FETCH_LIMIT_MS = 1_000;
const WITNESS_LIMIT_MS = 3_000;
const READ_AT_ONCE = 8;

/** The brokers as one process reaches them. */
export class KafkaClient {
  readonly #world: World;
  readonly #network: Network;
  readonly #brokers: Brokers;
  readonly #from: Process;

  constructor(world: World, network: Network, brokers: Brokers, from: Process) {
    this.#world = world;
    this.#network = network;
    this.#brokers = brokers;
    this.#from = from;
  }

  call<R>(name: string, effect: (brokers: Brokers) => R, timeoutMs = FETCH_LIMIT_MS): Promise<R> {
    const code = name === 'append' ? 'APPEND_UNANSWERED' : 'KAFKA_UNAVAILABLE';
    const noAnswer = (): Error => new IdallocError(code, `no answer to ${name}`);
    return this.#network.call(this.#from, {
      link: 'kafka',
      name,
      effect: () => effect(this.#brokers),
      timeoutMs,
      noAnswer,
    });
  }

  /** What `read` finds in a log, as soon as it finds anything. */
  async fetch<T>(log: string, read: (brokers: Brokers) => readonly T[], wanted: () => boolean): Promise<readonly T[]> {
    while (wanted()) {
      if (read(this.#brokers).length === 0) await this.#grown(log);
      const found = await this.call(log, read).catch(() => []); // lost: asked again
      if (found.length > 0) return found;
    }
    return [];
  }

  ledgerLog(clock: GuardedClock, history: History): LedgerLog {
    return {
      append: async (partition, entries) => {
        const begun = { sent: this.#world.tick(), ended: Number.POSITIVE_INFINITY, answered: false };
        const own = { process: this.#from.name, partition, ...begun };
        history.appends.push(own);
        const sent = clock.read().reading.wall;
        try {
          const appended = await this.call('append', (brokers) => brokers.append(partition, entries), PRODUCE_LIMIT_MS);
          own.answered = true;
          const received = clock.read().reading.wall;
          clock.recordDrift({ broker: '0', sent, received, appended: wallMs(appended.appendedAtMs) });
          return appended;
        } finally {
          own.ended = this.#world.tick();
        }
      },
      endOffset: (partition) => this.call('endOffset', ({ ledger }) => ledger.bounds(partition).high),
      requestEnd: (partition) => this.call('requestEnd', ({ requests }) => requests[partition]?.length ?? 0),
    };
  }

  witness(): WitnessPort {
    const read = () => this.call('witness read', ({ witness }) => witness.view());
    return {
      read,
      write: async (entries) => {
        await this.call('witness', ({ witness }) => witness.land(entries), WITNESS_LIMIT_MS);
        return await read();
      },
    };
  }

  /** What the broker says of the time; the marker that a real one is asked with tells nothing, so there is none. */
  async askClocks(clock: GuardedClock): Promise<readonly DriftSample[]> {
    const sent = clock.read().reading.wall;
    const appended = wallMs(await this.call('append', (brokers) => brokers.nowMs(), PRODUCE_LIMIT_MS));
    return [{ broker: '0', sent, received: clock.read().reading.wall, appended }];
  }

  /** One send for each topic; each record is acknowledged, or nothing is known. */
  publisher(): Publisher {
    return {
      publish: async (records) => {
        const sent = this.#world.tick();
        const byTopic = [...Map.groupBy(records, ({ topic }) => topic).values()];
        await Promise.all(
          byTopic.map((group) => this.call('publish', (brokers) => brokers.land(group, sent), PRODUCE_LIMIT_MS)),
        );
        return records.map(() => ({ ok: true }));
      },
    };
  }

  #grown(log: string): Promise<void> {
    return new Promise((resolve) => this.#brokers.whenGrown(log, () => this.#from.deliver(resolve)));
  }
}

/** Follows one ledger partition as the real reader does, into `sink`, for as long as the process lives. */
export class Reader {
  readonly #client: KafkaClient;
  readonly #partition: number;
  readonly #sink: LedgerSink;
  /** Raised whenever the place changes, so that what was fetched before is dropped. */
  #epoch = 0;
  #begun = false;

  constructor(client: KafkaClient, partition: number, sink: LedgerSink) {
    this.#client = client;
    this.#partition = partition;
    this.#sink = sink;
  }

  /** Asks the broker for the bounds of the partition, and reads it from where the sink says then. */
  restart(): void {
    this.#begun = false;
    void this.#follow(undefined);
  }

  /** Goes on where the sink says, as after a rebalance of the reader's own group. */
  rejoin(): void {
    const next = this.#sink.resume(this.#partition);
    if (this.#begun) void this.#follow(next);
  }

  async #follow(from: number | undefined): Promise<void> {
    this.#epoch += 1;
    const epoch = this.#epoch;
    const current = (): boolean => epoch === this.#epoch;
    let next = from;
    while (current()) {
      if (next === undefined) {
        const bounds: LogBounds | undefined = await this.#bounds();
        if (bounds === undefined || !current()) continue;
        this.#begun = true;
        next = this.#sink.begin(this.#partition, bounds);
        continue;
      }
      const from: number = next;
      const records: readonly LedgerRecord[] = await this.#client.fetch(
        `ledger ${this.#partition}`,
        (brokers) => this.#read(brokers, from),
        current,
      );
      const last = records.at(-1);
      if (!current() || last === undefined) continue;
      next = last.offset + 1;
      this.#sink.deliver(this.#partition, records);
    }
  }

  /** A position outside of the log goes to its start without a word. */
  #read({ ledger }: Brokers, from: number): readonly LedgerRecord[] {
    const { low, high } = ledger.bounds(this.#partition);
    return ledger.read(this.#partition, from >= low && from <= high ? from : low, READ_AT_ONCE);
  }

  /** Undefined when the broker did not answer. */
  #bounds(): Promise<LogBounds | undefined> {
    return this.#client.call('bounds', ({ ledger }) => ledger.bounds(this.#partition)).catch(() => undefined);
  }
}
