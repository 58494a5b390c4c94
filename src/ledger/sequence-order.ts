import type { Runtime } from '../async/runtime.ts';
import type { Pending, PendingNumbers, PendingOrder } from '../codec/head-values.ts';
import { type SequenceRow, type Statement, statedOf } from '../core/sequence-row.ts';
import { IdallocError } from '../errors.ts';
import { requestsRecreated } from './end-heads.ts';
import type { Head, HeadChange, LedgerHeads } from './heads.ts';
import type { NewEntry } from './ledger-ports.ts';
import {
  definitionNow,
  draftChange,
  dueNow,
  type HeadsView,
  isStopped,
  MAX_PENDING,
  pendingRecord,
  type SequenceDue,
  statedRecord,
} from './sequence-rule.ts';

/**
 * How an operator changes a sequence: by the rule that workers follow (`sequence-rule`). The order is swapped in, so
 * that etcd holds it, then appended, so that the log shows it. A command that ends in between is completed by the next
 * worker or command that looks.
 *
 * The rule is followed for one sequence alone. What is pending of others stays pending, in front of the order.
 */

/**
 * What an order makes of a sequence; `now` is undefined if neither etcd nor the ledger knows what it is, and `least`
 * the lowest number that does not repeat one. Throws to refuse.
 */
export type Change = (now: Statement | undefined, least: number) => Omit<Statement, 'edition'>;

/** Another append or swap may come first, each time. */
const MAX_STEPS = 100;
/** Calls without an answer, one after the other, after which the command gives up. */
const MAX_SILENT = 5;
/** A worker that has swapped numbers in appends them at once. */
const MAX_WAITS = 10;
const WAIT_MS = 200;

/**
 * Carries out an order, and returns what the ledger then says of the sequence.
 *
 * @throws IdallocError of `change`; SEQUENCE_STOPPED; OVERTAKEN if other writers always came first; ETCD_UNAVAILABLE,
 * ETCD_REFUSED or APPEND_UNANSWERED, after which the order may have taken effect, or will once a worker looks.
 */
export async function carryOut(options: OrderOptions, change: Change): Promise<SequenceRow> {
  return await new Order(options, change).carryOut();
}

class Order {
  readonly #options: OrderOptions;
  readonly #change: Change;
  /** Undefined when it has to be read. */
  #head: Head | undefined;
  /** What was swapped in, or may have been. */
  #given: { readonly statement: Statement; isSure: boolean } | undefined;
  #waits = 0;
  #silent = 0;
  /** Whether etcd and log were both read again since the sequence looked stopped. */
  #isConfirmed = false;

  constructor(options: OrderOptions, change: Change) {
    this.#options = options;
    this.#change = change;
  }

  async carryOut(): Promise<SequenceRow> {
    for (let steps = 0; steps < MAX_STEPS; steps += 1) {
      const shown = await this.#step();
      if (shown !== undefined) return shown;
    }
    const { log, partition, sequence } = this.#options;
    const message =
      `other writers came first ${MAX_STEPS} times in ledger partition ${partition}, up to offset ${log.reading.end}: ` +
      `see 'idalloc sequence show ${sequence}', and run the command again while fewer requests arrive`;
    throw new IdallocError('OVERTAKEN', message);
  }

  /** Reads the head, unless it is known, and the log to its end. */
  async #look(): Promise<HeadsView> {
    const { heads, log, partition, sequence } = this.#options;
    this.#head ??= await heads.read(partition, [sequence]);
    await log.readOn();
    return viewOf(this.#options, log.reading, this.#head);
  }

  /** One look at etcd and the log, and one call that follows from it. Returns the row once the log shows the order. */
  async #step(): Promise<SequenceRow | undefined> {
    const { sequence } = this.#options;
    const view = await this.#look();
    const shown = this.#shown();
    if (shown !== undefined) return shown;
    if (this.#isUnsure(view)) {
      await this.#learn(view);
      return undefined;
    }
    if (isStopped(view, sequence)) {
      this.#stop();
      return undefined;
    }
    const due = dueNow(view, [sequence]);
    if (due.kind === 'draft') await this.#draft(view);
    else if (due.kind === 'repair') await this.#swap(due.change);
    else if (due.kind === 'pending') {
      await this.#append(due.records.map((one, i) => pendingRecord(one, this.#at(view, i), view.head)));
    } else await this.#state(view, due);
    return undefined;
  }

  async #state(view: HeadsView, due: Extract<SequenceDue, { readonly kind: 'loss' | 'again' }>): Promise<void> {
    const { log, sequence } = this.#options;
    const placed = due.kind === 'loss' ? await this.#lossAt(view) : this.#at(view, 0);
    await this.#append([statedRecord(due, log.reading.row(sequence)?.known.next, placed)]);
  }

  /** The row, if the log shows the order or a later one. */
  #shown(): SequenceRow | undefined {
    const row = this.#options.log.reading.row(this.#options.sequence);
    const given = this.#given;
    if (row === undefined || given === undefined || row.known.edition < given.statement.edition) return undefined;
    if (given.isSure || isSame(row.known, given.statement)) return row;
    this.#given = undefined; // the swap without an answer failed, and another operator's succeeded
    return undefined;
  }

  /** Whether the part of the log that was read does not show enough of the sequence. */
  #isUnsure({ head }: HeadsView): boolean {
    const { sequence } = this.#options;
    const { reading } = this.#options.log;
    const isMissing = statedOf(reading.row(sequence)) === undefined && head.sequences.has(sequence);
    return (isMissing && !reading.isWhole) || numbersIn(head).some((one) => !reading.knows(one));
  }

  /**
   * Lets a worker append what it has just swapped in; else reads everything, since only unknown keys may be appended.
   */
  async #learn({ head }: HeadsView): Promise<void> {
    const { log, runtime, sequence } = this.#options;
    const next = log.reading.row(sequence)?.known.next ?? -1;
    const pending = numbersIn(head);
    const isUnderWay = pending.some(({ entry }) => entry.first >= next);
    if (!isUnderWay || this.#waits >= MAX_WAITS) return await log.readWhole(pending);
    this.#waits += 1;
    this.#head = undefined;
    await runtime.sleep(WAIT_MS);
  }

  /** Stops at the second time: only etcd's memory can be wrong, but what was read first may be from before a draft. */
  #stop(): void {
    if (this.#isConfirmed) throw stopped(this.#options.sequence);
    this.#isConfirmed = true;
    this.#head = undefined;
  }

  async #draft(view: HeadsView): Promise<void> {
    const { sequence } = this.#options;
    const next = view.row(sequence)?.known.next;
    const definition = definitionNow(view, sequence);
    const now = definition && { ...definition, next: next ?? 0 };
    const statement: Statement = { ...this.#change(now, next ?? 0), edition: (now?.edition ?? 0) + 1 };
    const order: PendingOrder = { kind: 'order', sequence, first: next ?? -1, statement };
    const change = draftChange(view, [order], -1);
    const given = { statement, isSure: false };
    this.#given = given;
    given.isSure = await this.#swap(change);
  }

  /** Whether it surely succeeded. */
  async #swap(change: HeadChange): Promise<boolean> {
    const { heads, partition } = this.#options;
    const head = this.#head as Head;
    const others = head.pending.filter((one) => this.#isOfOthers(one));
    const pending = [...others, ...change.pending];
    if (pending.length > MAX_PENDING) throw full(partition, pending.length);
    // What stays pending from before the namespace was rebuilt keeps that mark.
    const namespace = others.length > 0 ? head.namespace : change.namespace;
    await this.#heard(async () => {
      this.#head = await heads.swap(partition, head, { ...change, namespace, pending });
    });
    return this.#head !== undefined;
  }

  /** Whether it is another sequence's, and the log is not known to show it. */
  #isOfOthers(pending: Pending): boolean {
    const { reading } = this.#options.log;
    if (pending.sequence === this.#options.sequence) return false;
    if (pending.kind === 'numbers') return reading.firstOf(pending) !== pending.entry.first;
    const edition = reading.row(pending.sequence)?.known.edition;
    return edition === undefined || edition < pending.statement.edition;
  }

  async #append(records: readonly NewEntry[]): Promise<void> {
    await this.#heard(() => this.#options.log.append(records));
  }

  /**
   * The copy shows nothing of requests, but the head does. A record that comes late to a log that has lost its tail may
   * be the first of its sequence there, and must hide what was decided before.
   */
  #at({ head }: HeadsView, i: number) {
    return { end: 0, through: head.through, at: this.#options.log.reading.end + i };
  }

  /** A loss lets every request up to the end of the topic be FORGOTTEN whose decision the log does not have. */
  async #lossAt({ head }: HeadsView) {
    const { log } = this.#options;
    const at = log.reading.end;
    const requestEnd = await log.requestEnd(head.through);
    // Offsets of another topic would hide requests of this one that are yet to come.
    if (head.through >= requestEnd) throw requestsRecreated(this.#options.partition, head.through, requestEnd);
    return { end: at, through: Math.max(head.through, requestEnd - 1), at };
  }

  /** Neither success nor failure is assumed of a call without an answer: etcd and the log are read again. */
  async #heard(call: () => Promise<void>): Promise<void> {
    try {
      await call();
      this.#silent = 0;
    } catch (error) {
      const isSilent = error instanceof IdallocError && SILENCES.has(error.code);
      this.#silent += 1;
      if (!isSilent || this.#silent >= MAX_SILENT) throw error;
      this.#head = undefined;
    }
  }
}

function numbersIn({ pending }: Head): readonly PendingNumbers[] {
  return pending.filter((one) => one.kind === 'numbers');
}

const SILENCES: ReadonlySet<string> = new Set(['ETCD_UNAVAILABLE', 'APPEND_UNANSWERED']);

/** Whether the ledger says what an order said, which another operator may have given as well. */
function isSame(row: Statement, { step, max, format, closed, edition, next }: Statement): boolean {
  const isDefined = row.step === step && row.max === max && row.format === format && row.closed === closed;
  return isDefined && row.edition === edition && row.next >= next;
}

function stopped(sequence: string): IdallocError {
  const message =
    `the sequence ${sequence} is stopped: the ledger contradicts what etcd holds of it, as after a restore of etcd. Stop the workers ` +
    'and run: idalloc namespace rebuild';
  return new IdallocError('SEQUENCE_STOPPED', message);
}

function full(partition: number, count: number): IdallocError {
  const message = `${count} decisions of ledger partition ${partition} are pending in etcd, and ${MAX_PENDING} fit: start a worker, which appends them`;
  return new IdallocError('ETCD_REFUSED', message);
}

/** What was read of the home partition, which may begin in the middle of the log. */
export interface LogReading {
  /** Whether all that the log has was read. */
  readonly isWhole: boolean;
  /** Whether all that the log has was read for the key of these, or its record was found. */
  knows(pending: PendingNumbers): boolean;
  /** The offset behind the last record that was read. */
  readonly end: number;
  row(name: string): SequenceRow | undefined;
  /** The first number under the key of pending numbers, as far as the log was read. */
  firstOf(pending: PendingNumbers): number | undefined;
  /** Whether the key's record may be among those that retention took, that the ledger lost, or that were not read. */
  isForgotten(pending: PendingNumbers): boolean;
}

/** The home partition, as an order reads and writes it. */
export interface OrderLog {
  readonly reading: LogReading;
  /** Reads on to the end. Then `row` is that of the log, if the log has one. */
  readOn(): Promise<void>;
  /** Reads all that the log has, so that the keys of these are known from then on. */
  readWhole(pending: readonly PendingNumbers[]): Promise<void>;
  /**
   * Appends the records in one batch. Resolves when they are in the log, wherever they are. Rejects with
   * APPEND_UNANSWERED if that is unknown.
   */
  append(records: readonly NewEntry[]): Promise<void>;
  /** The end of the home partition's requests, told by a leader that is not deposed. */
  requestEnd(known: number): Promise<number>;
}

export interface OrderOptions {
  readonly heads: LedgerHeads;
  readonly log: OrderLog;
  readonly partition: number;
  readonly sequence: string;
  /** The UUID of the namespace. */
  readonly namespace: string;
  readonly runtime: Pick<Runtime, 'sleep'>;
}

/** What the rule looks at, for one sequence alone. */
export function viewOf(
  { namespace, sequence }: Pick<OrderOptions, 'namespace' | 'sequence'>,
  reading: LogReading,
  head: Head,
): HeadsView {
  return {
    row: (name) => reading.row(name),
    head: { ...head, pending: head.pending.filter((one) => one.sequence === sequence) },
    namespace,
    through: head.through,
    firstOf: (pending) => reading.firstOf(pending),
    isForgotten: (pending) => reading.isForgotten(pending),
  };
}
