import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { decodeLedgerKey, digestEntry, readLedgerKey } from '../../src/codec/ledger-key.ts';
import type { SequenceEntry } from '../../src/codec/sequence-entry.ts';
import { decodeAssignment, decodeJoining, decodeStandbys, STICKY } from '../../src/kafka/loops/member-claims.ts';
import type { JoinGroupRequest, SyncGroupRequest } from '../../src/kafka/wire/group-apis.ts';
import type { FetchRequest } from '../../src/kafka/wire/record-apis.ts';
import type { LedgerCopies, LedgerRecord } from '../../src/ledger/ledger-ports.ts';
import type { CallObserver } from '../support/fake-kafka/network.ts';
import type { Brokers } from './brokers.ts';
import { copyEventsSince } from './copy-checks.ts';
import type { CopyEvent, History } from './history.ts';
import { type Pair, pairOf } from './pairs.ts';
import type { World } from './world.ts';

/** What CopyWatch needs to record the events of copies. */
interface RecordingParts {
  readonly world: World;
  readonly brokers: Brokers;
  readonly history: History;
}

/**
 * Records the copies of one process: which it opens, empties, completes and drops, what it reports of them to its
 * group, and how often it reads entries back from the ledger.
 */
export class CopyWatch {
  readonly #around: RecordingParts;
  readonly #process: string;
  readonly #pair: Pair;
  /** Copies that were empty when they were opened or emptied, with the log's end at that time. */
  readonly #restoring = new Map<number, number>();
  readonly #open = new Set<number>();
  /** Copies that were saved since the last sync. */
  readonly #unsynced = new Set<number>();
  #index: LedgerCopies | undefined;

  constructor(around: RecordingParts, process: string, pair: Pair) {
    this.#around = around;
    this.#pair = pair;
    this.#process = process;
  }

  /** Wraps the index of the process, to record its events. */
  around(index: LedgerCopies): LedgerCopies {
    const { load, drop, wipe, apply, save, sync } = index;
    index.load = (partition) => {
      const isNew = !index.held().includes(partition);
      const hasMore = load.call(index, partition);
      if (hasMore || this.#open.has(partition)) return hasMore;
      this.#open.add(partition);
      this.#began(partition, 'opened', isNew);
      if (!isNew) this.#inherit(this.#pair.first + partition);
      return hasMore;
    };
    index.save = (partition) => {
      const hasWritten = save.call(index, partition);
      if (hasWritten && this.#unsynced.has(partition)) {
        const what = `${this.#process} saved ledger ${this.#pair.first + partition} again before the disk had the last save`;
        this.#around.history.unsynced.push(what);
      }
      if (hasWritten) this.#unsynced.add(partition);
      return hasWritten;
    };
    index.sync = async () => {
      this.#unsynced.clear(); // if it fails, an empty store has replaced this one
      await sync.call(index);
    };
    index.drop = (partition) => {
      this.#unsynced.delete(partition);
      if (this.#open.delete(partition)) this.#write({ partition, what: 'dropped', logEnd: 0 });
      return drop.call(index, partition);
    };
    index.wipe = (partition, from) => {
      wipe.call(index, partition, from);
      this.#began(partition, 'emptied', true);
    };
    index.apply = (partition, records) => {
      const from = index.end(partition);
      const applied = apply.call(index, partition, records);
      for (const record of records) if (record.offset >= from) this.#learned(partition, record);
      const logEnd = this.#restoring.get(partition);
      if (logEnd !== undefined && index.end(partition) >= logEnd) {
        this.#restoring.delete(partition);
        this.#write({ partition, what: 'restored', logEnd });
      }
      return applied;
    };
    this.#index = index;
    return index;
  }

  readonly observer: CallObserver = {
    sent: (call, request) => {
      if (call === 'joinGroup') this.#onReport(request as JoinGroupRequest);
      if (call === 'syncGroup') this.#around.history.warmUps += warmUpsOf(request as SyncGroupRequest);
    },
    ended: (call, request, isAnswered) => {
      if (isAnswered && call === 'fetch' && readsBack(request as FetchRequest)) this.#around.history.readBacks += 1;
    },
  };

  /**
   * Compares the copies that a member reports with the log; copies opened after the log's last loss must be of that
   * log.
   */
  #onReport({ protocols }: JoinGroupRequest): void {
    const { brokers, history } = this.#around;
    const own = protocols.find(({ name }) => name === STICKY);
    const { copies } = own === undefined ? {} : decodeJoining(this.#pair.requests, own.metadata);
    for (const number of copies?.keys() ?? []) {
      const partition = this.#pair.first + number;
      if (!this.#open.has(number) || brokers.mayServeLostLedger(partition)) continue;
      const opened = history.copies.findLast(
        (one) => one.process === this.#process && one.partition === partition && one.what !== 'restored',
      );
      const lost = history.losses.findLast((one) => one.partition === partition);
      const last = this.#index?.last(number);
      if (opened === undefined || last === undefined || opened.order < (lost?.order ?? 0)) continue;
      const record = brokers.ledgerRecord(partition, last.offset);
      const isGone = last.offset < brokers.bounds('ledger', partition).low;
      if (isGone || (record !== undefined && digestEntry(record).equals(last.digest))) continue;
      history.falseCopies.push(
        `${this.#process} reported a copy of ledger ${partition} up to ${last.offset}, which is of another log`,
      );
    }
  }

  #learned(partition: number, { offset, key, value, headers }: LedgerRecord): void {
    const entry = decodeLedgerEntry(value as Buffer, headers);
    if (entry.kind === 'numbers' || entry.kind === 'statement') this.#learnedNumbers(partition, offset, key, entry);
    const [first] = entry.kind === 'batch' ? entry.batch.ranges : [];
    if (entry.kind !== 'batch' || first === undefined) return;
    const { world, history } = this.#around;
    const correlationId = decodeLedgerKey(key as Buffer).toString('latin1');
    const what = { partition: this.#pair.first + partition, offset, requestOffset: entry.requestOffset, correlationId };
    history.learned.push({ order: world.tick(), process: this.#process, ...what, first: first.first });
  }

  #learnedNumbers(partition: number, offset: number, key: Buffer | null, entry: SequenceEntry): void {
    const read = readLedgerKey(key as Buffer);
    if (entry.at !== offset || read.kind === 'batch') return;
    const next = entry.kind === 'statement' ? entry.next : entry.first + entry.count * entry.step;
    const what = { partition: this.#pair.first + partition, offset, sequence: read.sequence, next };
    this.#around.history.learnedNumbers.push({ order: this.#around.world.tick(), process: this.#process, ...what });
  }

  /** The copy is that of an earlier process of the same machine, with all that this one knew. */
  #inherit(partition: number): void {
    const { world, history } = this.#around;
    const [machine] = this.#process.split('.');
    const before = history.learnedNumbers.filter(
      (one) => one.partition === partition && one.process.startsWith(`${machine}.`) && one.process !== this.#process,
    );
    for (const one of before) {
      const since = copyEventsSince(history, one);
      if (since.some(({ what }) => what === 'dropped')) continue;
      const offset = since.some(({ what }) => what === 'emptied') ? -1 : one.offset;
      history.learnedNumbers.push({ ...one, order: world.tick(), process: this.#process, offset });
    }
  }

  #began(partition: number, what: 'opened' | 'emptied', isEmpty: boolean): void {
    const logEnd = this.#around.brokers.surelyEnds(this.#pair.first + partition);
    if (isEmpty && logEnd > 0) this.#restoring.set(partition, logEnd);
    this.#write({ partition, what, logEnd });
  }

  #write(own: Pick<CopyEvent, 'partition' | 'what' | 'logEnd'>): void {
    const { world, history } = this.#around;
    const event = { ...own, partition: this.#pair.first + own.partition };
    history.copies.push({ order: world.tick(), process: this.#process, ...event });
    world.note(() => `${this.#process}: copy of ledger ${event.partition} ${event.what}, log end ${event.logEnd}`);
  }
}

/** The number of warm-ups assigned to members. */
function warmUpsOf({ assignments }: SyncGroupRequest): number {
  return assignments.reduce((sum, { assignment }) => {
    const { userData } = decodeAssignment(assignment);
    return sum + (decodeStandbys(userData ?? Buffer.alloc(0))?.warmups.length ?? 0);
  }, 0);
}

/** Whether a fetch reads single entries back: only followers let the broker hold a fetch. */
export function readsBack({ maxWaitMs, partitions }: FetchRequest): boolean {
  return maxWaitMs === 0 && partitions.every(({ topic }) => pairOf('ledger', topic) !== undefined);
}
