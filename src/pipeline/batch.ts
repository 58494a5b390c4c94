import type { Prepared } from './decide.ts';
import { type Deferrals, type LaneName, letsOthersGo } from './deferred.ts';
import { type Intake, UNKNOWN_SCHEMAS, withSchemas } from './intake.ts';
import { idsFor, isAboveLimit, isForNumbers, type PipelineDeps, processPart } from './part.ts';
import { type Cutting, cutIntoParts, PART_MAX_REQUESTS } from './parts.ts';
import type { RequestRecord } from './ports.ts';
import { RECORDS_PER_TURN } from './record-turns.ts';
import type { TracePart } from './trace.ts';

/**
 * The most records of a part that others go before. What is made of them lives until they are answered, and each
 * garbage collection copies it. The part holds its partition's turn while it is decided, and each of its reply topics
 * may have to be looked up: small requests wait for that.
 */
const LARGE_PART_MAX_RECORDS = RECORDS_PER_TURN / 2;

/** How a session observes and stops the work on its batch. */
export interface BatchControl {
  /** False once the session has ended or the gate has closed; undecided requests are then left for later. */
  readonly isCurrent: () => boolean;
  /** Everything up to this request offset has been answered or dead-lettered, and acknowledged, or deferred. */
  readonly resolved: (offset: number) => void;
  /**
   * Takes over to answer the part up to this request offset, with retries, and to resolve it. Resolves when the next
   * part may follow. If absent, a part is answered before the next one is begun.
   */
  readonly answer?: (offset: number, answer: () => Promise<void>) => Promise<void>;
  /** The lane whose requests are to be served; `small` by default. */
  readonly lane?: LaneName;
  /** Take requests of other lanes, so that those after them need not wait. */
  readonly deferrals?: Deferrals;
  /**
   * In other lanes than `small`: whether a request to this reply topic waits for a debt; without a name, whether a
   * record does that was not looked at.
   */
  readonly isDebtor?: (replyTopic: string | undefined, offset: number) => boolean;
  /** Holds the IDs of large requests that are not decided yet. */
  readonly prepared?: Prepared;
}

/**
 * Processes a record batch of one request partition up to acknowledged replies, part by part, begun in order.
 *
 * Rejects on a retryable error; parts that are resolved or taken over stay so, and the rest must be delivered again.
 */
export async function processBatch(
  all: PipelineDeps,
  partition: number,
  records: readonly RequestRecord[],
  control: BatchControl,
): Promise<void> {
  const deps = letsOthersGo(control.lane) ? { ...all, publisher: all.largePublisher } : all;
  const taken = ({ large, debts }: Deferrals = {}) => (large?.taken ?? 0) + (debts?.taken ?? 0);
  const takenBefore = taken(control.deferrals);
  try {
    await processChunk(deps, partition, records, control);
  } finally {
    deps.observe.deferred(taken(control.deferrals) - takenBefore);
  }
}

async function processChunk(
  deps: PipelineDeps,
  partition: number,
  records: readonly RequestRecord[],
  control: BatchControl,
): Promise<void> {
  const { lane = 'small', deferrals } = control;
  const place = deferrals?.debts;
  const leavesDense = place !== undefined || (lane !== 'small' && lane !== 'debts');
  const maxStep = letsOthersGo(lane) ? LARGE_PART_MAX_RECORDS : PART_MAX_REQUESTS;
  for (let from = 0; from < records.length && control.isCurrent(); ) {
    const first = records[from] as RequestRecord;
    if (leavesDense && first.isDense === true) {
      place?.take(first); // without a look at it
      control.resolved(first.offset);
      from += 1;
      continue;
    }
    const some = records.slice(from, from + maxStep);
    const end = leavesDense ? some.findIndex(({ isDense }) => isDense === true) : -1;
    const step = end < 0 ? some : some.slice(0, end);
    from += step.length;
    const tracePart = deps.tracing.received(partition);
    const isLookUpDeferred = areUnknownWaiting(deps, control);
    const { ready, error } = isLookUpDeferred ? { ready: step } : await withSchemas(deps.schemas, step, partition);
    const takenBefore = place?.taken ?? 0;
    await processReadable(deps, partition, ready, { ...control, isLookUpDeferred }, tracePart);
    if (error !== undefined) throw error;
    const areAllWaiting = place !== undefined && place.taken - takenBefore === step.length;
    if (areAllWaiting && control.isCurrent()) from = leaveRest(records, from, first, control);
  }
}

/**
 * Leaves all that follows an index in the batch of this record to the lane `debts`, without a look at it. Returns the
 * index from which others follow: the same one if there is no room for that.
 */
function leaveRest(
  records: readonly RequestRecord[],
  from: number,
  { fields }: RequestRecord,
  { deferrals, resolved }: BatchControl,
): number {
  let end = from;
  while (fields !== undefined && records[end]?.fields?.isOfBatch(fields) === true) end += 1;
  const [first, last] = [records[from], records[end - 1]];
  if (end === from || first === undefined || last === undefined) return from;
  if (deferrals?.debts?.takeUnseen(first, last) !== true) return from;
  resolved(last.offset);
  return end;
}

/**
 * Whether records of unknown schemas wait, or have to. Then no more schemas are looked up for the small lane: what is
 * behind would wait for the registry, too.
 */
function areUnknownWaiting({ schemas, accounts }: PipelineDeps, { lane = 'small', deferrals }: BatchControl): boolean {
  const place = deferrals?.debts;
  if (schemas === undefined || lane !== 'small' || place === undefined) return false;
  const payer = accounts.payerOf(UNKNOWN_SCHEMAS);
  return accounts.mustWait(payer) || place.waits(payer);
}

async function processReadable(
  deps: PipelineDeps,
  partition: number,
  records: readonly RequestRecord[],
  control: BatchControl & Pick<Cutting, 'isLookUpDeferred'>,
  tracePart: TracePart,
): Promise<void> {
  const { layout, accounts, turns } = deps;
  const { lane = 'small', deferrals, prepared, isDebtor, isLookUpDeferred } = control;
  const intakes = await receiveAll(deps, records, lane);
  let through = -1;
  const kinds = {
    idsFor: idsFor(deps, partition),
    isForNumbers: isForNumbers(partition),
    isAboveLimit: isAboveLimit(deps, partition),
  };
  const cutting = { layout, accounts, partition, ...kinds, lane, deferrals, isDebtor, isLookUpDeferred };
  const parts = cutIntoParts(intakes, cutting);
  // A part is cut and begun in one step. Were it cut for nothing, requests behind it would be in other lanes already,
  // and those of accounts that are in debt from then on would look as if they had been taken over with them.
  while (control.isCurrent()) {
    const next = parts.next();
    if (next.done === true) break;
    const part = next.value;
    const last = part.at(-1);
    if (last === undefined) continue;
    const { offset } = last.record;
    const answer = () => tracePart(part, (trace) => processPart(deps, partition, part, trace, prepared));
    if (control.answer !== undefined) await control.answer(offset, answer);
    else {
      await (letsOthersGo(lane) ? turns.large(answer) : answer());
      control.resolved(offset);
    }
    through = offset;
  }
  const end = records.at(-1)?.offset ?? through;
  if (end > through && control.isCurrent()) control.resolved(end); // the last ones are left to other lanes
}

async function receiveAll(
  { reader, turns }: PipelineDeps,
  records: readonly RequestRecord[],
  lane: LaneName,
): Promise<Intake[]> {
  const intakes: Intake[] = [];
  for (let from = 0; from < records.length; from += RECORDS_PER_TURN) {
    const some = records.slice(from, from + RECORDS_PER_TURN);
    const readAll = () =>
      turns.each(some, (record) => {
        if (record.since !== undefined) throw new RangeError(`the batch at offset ${record.since} was not read`);
        intakes.push(reader.read(record));
      });
    await (letsOthersGo(lane) ? turns.large(readAll) : turns.take(some.length).then(readAll));
  }
  return intakes;
}
