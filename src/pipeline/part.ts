import type { Slots } from '../async/slots.ts';
import { textOfId } from '../codec/request-checks.ts';
import { isLarge } from '../core/layout.ts';
import { ERRORS, type ErrorCode, IdallocError } from '../errors.ts';
import type { ReadAhead } from '../ledger/decided.ts';
import type { TimeStep } from '../ledger/ledger-ports.ts';
import { type Accounts, PRICES_US } from './accounts.ts';
import { type DecisionDeps, decide, forwardAll, type Prepared, withoutDecision } from './decide.ts';
import type { Answer, Decision, Refused } from './decision.ts';
import { type Accepted, hasTwins, type Intake, type RequestReader } from './intake.ts';
import type { NumberDecisions } from './numbers.ts';
import {
  bareLetter,
  batchReply,
  errorReply,
  forwarded,
  type LetterContext,
  lettersFor,
  type Rejection,
} from './outgoing.ts';
import type { Delivery, OutgoingRecord, Publisher, ReplyTopicLookup } from './ports.ts';
import type { RecordTurns } from './record-turns.ts';
import { type ChargeDeps, charged, idKind } from './rulings.ts';
import type { PartTrace, Tracing } from './trace.ts';

/** How many parts with large requests may queue for IDs at a time: one more than keeps the generator busy. */
export const LARGE_AT_ONCE = 2;

export interface PipelineDeps extends Omit<DecisionDeps, 'trace'>, PublishDeps, LetterContext {
  readonly reader: RequestReader;
  readonly replyTopics: ReplyTopicLookup;
  /** Decides about numbers of sequences. */
  readonly numbers: Pick<NumberDecisions, 'decide'>;
  /** For what others go before, so that it holds up nothing else. */
  readonly largePublisher: Publisher;
  /** Shared by the worker's partitions; each part with large requests takes one. */
  readonly largeSlots: Slots;
  /** Shared by the worker's partitions. */
  readonly turns: RecordTurns;
  /** Shared by the worker's partitions. */
  readonly accounts: Accounts;
  readonly observe: PipelineObserver;
  readonly tracing: Tracing;
}

interface PartDeps extends PipelineDeps, DecisionDeps {
  readonly trace: PartTrace;
  /** The requests of the part that were refused, by code. Counting each for itself takes longer than refusing it. */
  readonly refused: Map<ErrorCode, { requests: number; readonly example: Intake }>;
}

/** Where an operator finds a request. */
interface RequestExample {
  readonly partition: number;
  readonly offset: number;
  /** As text; undefined if the request has none. */
  readonly correlationId: string | undefined;
}

/** Receives the events of the pipeline, for metrics. */
interface PipelineObserver {
  /** The batches of a part were settled; their replies have not been sent yet. */
  served(part: Served): void;
  /** This many replies were acknowledged, error replies included. */
  replied(replies: number): void;
  /** So many requests of a part were refused, and all of it is acknowledged. */
  failed(code: ErrorCode, requests: number, example: RequestExample): void;
  /** A dead letter that stands for this many records was acknowledged. */
  deadLettered(code: ErrorCode, records: number, example: RequestExample): void;
  /** This many requests were appended to their home partitions. */
  forwarded(requests: number): void;
  /** This many requests of a chunk let others go first. */
  deferred(requests: number): void;
}

/**
 * How many requests got a new batch or new numbers, how many theirs again, and how many IDs and numbers the new ones
 * hold.
 */
interface Served {
  readonly issued: number;
  readonly replayed: number;
  readonly ids: number;
  readonly numbers: number;
}

/**
 * How many IDs a request may take here: none if another partition decides it, or for numbers of a sequence. The same at
 * every reading, since the lane of a request depends on it.
 */
export function idsFor({ maxCount }: PipelineDeps, partition: number): (accepted: Accepted) => number {
  return ({ request: { sequence, count }, home }) => {
    return sequence === undefined && count <= maxCount && home === partition ? count : 0;
  };
}

/** Whether a request asks for more IDs than it may now: it may wait as a large one since more was allowed. */
export function isAboveLimit({ maxCount }: PipelineDeps, partition: number): (accepted: Accepted) => boolean {
  return ({ request: { sequence, count }, home }) => sequence === undefined && count > maxCount && home === partition;
}

/**
 * Whether numbers are decided here for a request: the rule of sequences, which needs etcd. Those of another partition
 * are forwarded as any request is.
 */
export function isForNumbers(partition: number): (accepted: Accepted) => boolean {
  return ({ request: { sequence }, home }) => sequence !== undefined && home === partition;
}

/** Decides a part and publishes what follows, until all of it is acknowledged. Rejects on a retryable error. */
export async function processPart(
  all: PipelineDeps,
  partition: number,
  part: readonly Intake[],
  trace: PartTrace,
  prepared: Prepared = new Map(),
): Promise<void> {
  const accepted = part.filter((intake) => intake.kind === 'accepted');
  const refused: PartDeps['refused'] = new Map();
  const deps = { ...all, trace, refused, missing: await missingTopics(all, accepted) };
  await prepare(deps, partition, accepted, prepared);
  const decisions = await trace.step(
    'decide',
    () => accepted.map(({ record }) => record),
    async () => {
      if (partition >= deps.partitions) return forwardAll(deps, partition, accepted);
      // A part has such requests alone, or none.
      if (accepted.some(isForNumbers(partition))) return await deps.numbers.decide(deps, partition, accepted);
      const inTurn = (ahead?: ReadAhead) =>
        deps.ledger.inTurn(partition, () => decide(deps, partition, accepted, prepared, ahead));
      // Others of the partition don't wait while the ledger is read for what a first turn has found to be known.
      const decided = (await inTurn()) ?? (await inTurn(await deps.ledger.readAhead(partition, accepted)));
      if (decided === undefined) throw new RangeError(`partition ${partition} was not decided`);
      return decided;
    },
  );
  for (const { record } of accepted) prepared.delete(record.offset);
  const answers = answersOf(deps, partition, accepted, decisions);
  trace.answered(accepted, answers);
  deps.observe.served(countServed(answers));
  let next = 0; // index into the answers, which follow the order of the accepted requests
  const outcomes = part.map((intake) => {
    return outcomeOf(deps, partition, intake, intake.kind === 'accepted' ? answers[next++] : undefined);
  });
  const work = [publishReplies(deps, partition, outcomes), forward(deps, partition, outcomes)] as const;
  await Promise.allSettled(work); // so that nothing is still in progress if one fails
  const [undelivered, unforwarded] = await Promise.all(work);
  const rejections = [...outcomes, ...unforwarded].flatMap(({ rejection }) => rejection ?? []);
  rejections.push(...undelivered, ...(await publishReplies(deps, partition, unforwarded)));
  await publishDeadLetters(deps, partition, rejections);
  for (const [code, { requests, example }] of refused)
    deps.observe.failed(code, requests, exampleOf(partition, example));
  chargeForReads(deps, accepted, decisions);
  deps.quotas?.answered(partition, part);
}

/** The reply topics that do not exist. Rejects when one can't be looked up. */
async function missingTopics({ replyTopics }: PipelineDeps, part: readonly Accepted[]): Promise<ReadonlySet<string>> {
  const named = new Set(part.map(({ request }) => request.replyTopic));
  const missing = await Promise.all([...named].map(async (topic) => ((await replyTopics.exists(topic)) ? [] : topic)));
  return new Set(missing.flat());
}

/**
 * Takes the IDs of large requests before their partition's turn, which small requests need meanwhile. Two parts at a
 * time over all partitions do so. What was taken for one request stays, should another fail, for the next try.
 */
async function prepare(
  deps: PartDeps,
  partition: number,
  part: readonly Accepted[],
  prepared: Prepared,
): Promise<void> {
  const { layout, ledger, trace } = deps;
  const ids = idsFor(deps, partition);
  const large = part.filter((accepted) => isLarge(layout, accepted.request.count) && ids(accepted) > 0);
  if (large.length === 0) return;
  const ahead = await ledger.readAhead(partition, large);
  const undecided = await ledger.inTurn(partition, () => withoutDecision(deps, partition, large, ahead));
  const records = () => undecided.map(({ record }) => record);
  await trace.step('allocate', records, () => takeIds(deps, undecided, prepared));
}

async function takeIds(
  { allocator, largeSlots }: PipelineDeps,
  undecided: readonly Accepted[],
  prepared: Prepared,
): Promise<void> {
  const release = await largeSlots.take();
  try {
    for (const { record, request } of undecided) {
      const held = prepared.get(record.offset);
      if (held !== undefined && allocator.holds(held)) continue;
      const [allocation] = await allocator.allocate([request.count]);
      if (allocation !== undefined) prepared.set(record.offset, allocation);
    }
  } finally {
    release();
  }
}

/**
 * What was read of the ledger is known only then, and a part is the most that is read on credit. It is charged once,
 * when all is acknowledged: a part that failed and is tried again is no fault of who asked.
 */
function chargeForReads({ accounts }: PartDeps, part: readonly Accepted[], decisions: readonly Decision[]): void {
  part.forEach(({ request }, at) => {
    const decision = decisions[at];
    const isRead =
      decision?.kind === 'batch' ? decision.replayed : decision?.kind === 'refused' && decision.code === 'CONFLICT';
    if (isRead) accounts.charge(accounts.payerOf(request.replyTopic), PRICES_US.decision);
  });
}

function countServed(answers: readonly Answer[]): Served {
  const served = { issued: 0, replayed: 0, ids: 0, numbers: 0 };
  for (const { decision } of answers) {
    if (decision.kind !== 'batch') continue;
    if (decision.replayed) served.replayed += 1;
    else {
      served.issued += 1;
      if (decision.entry.kind === 'numbers') served.numbers += decision.entry.count;
      else served.ids += decision.entry.count;
    }
  }
  return served;
}

/** The outcome for one record: a reply if its sender can be reached, a dead letter if the record is bad. */
interface Outcome {
  readonly intake: Intake;
  readonly reply?: OutgoingRecord | undefined;
  readonly rejection?: Rejection | undefined;
  /** The request itself, for its home partition. */
  readonly forward?: OutgoingRecord | undefined;
}

function outcomeOf(deps: PartDeps, partition: number, intake: Intake, answer: Answer | undefined): Outcome {
  const decision = answer?.decision;
  if (answer?.isRepeated === true) {
    if (decision?.kind === 'refused') countRefusal(deps, decision.code, intake);
    return { intake };
  }
  if (intake.kind === 'accepted' && decision?.kind === 'batch') {
    return { intake, reply: batchReply(intake, decision.entry, decision, deps) };
  }
  if (intake.kind === 'accepted' && decision?.kind === 'elsewhere') {
    return { intake, forward: forwarded(intake, { from: partition, ...decision }, deps) };
  }
  const refusal = decision?.kind === 'refused' ? decision : intake.kind === 'rejected' ? intake : undefined;
  if (refusal === undefined) throw new RangeError(`no decision for the request at offset ${intake.record.offset}`);
  return refuse(deps, intake, refusal);
}

function countRefusal({ refused }: PartDeps, code: ErrorCode, example: Intake): void {
  const counted = refused.get(code);
  if (counted === undefined) refused.set(code, { requests: 1, example });
  else counted.requests += 1;
}

function exampleOf(partition: number, { record, address }: Pick<Intake, 'record' | 'address'>): RequestExample {
  const { correlationId } = address;
  return { partition, offset: record.offset, correlationId: correlationId && textOfId(correlationId) };
}

function refuse(deps: PartDeps, intake: Intake, refusal: Omit<Refused, 'kind'>): Outcome {
  const { code, message } = refusal;
  countRefusal(deps, code, intake);
  deps.trace.refused(intake.record, code);
  const { address } = intake;
  const isBad = ERRORS[code].deadLetter;
  const { replyTopic } = address;
  const isReachable = code !== 'REPLY_UNDELIVERABLE';
  const isAnswered = isReachable && (!isBad || replyTopic === undefined || deps.junk.takeReply(replyTopic));
  return {
    intake,
    reply: isAnswered ? errorReply(address, refusal, deps) : undefined,
    rejection: isBad ? { record: intake.record, address, code, message } : undefined,
  };
}

/** Publishes the replies; rejects the requests whose reply topic rejects the reply. */
async function publishReplies(deps: PartDeps, partition: number, outcomes: readonly Outcome[]): Promise<Rejection[]> {
  const replies = outcomes.filter(({ reply }) => reply !== undefined);
  const refused = await publishAnswers(deps, 'reply', partition, replies, ({ reply }) => reply as OutgoingRecord);
  deps.observe.replied(replies.length - refused.length);
  return refused.flatMap(({ item: { intake, rejection }, reason: message }) => {
    if (rejection !== undefined) return [];
    deps.trace.refused(intake.record, 'REPLY_UNDELIVERABLE');
    return { record: intake.record, address: intake.address, code: 'REPLY_UNDELIVERABLE', message };
  });
}

/**
 * Appends requests to their home partitions. Returns a refusal for a record that the topic rejects, because its headers
 * made it too large. Rejects with TOPIC_INVALID when the topic accepts no record: requests must not be lost.
 */
async function forward(deps: PartDeps, partition: number, outcomes: readonly Outcome[]): Promise<Outcome[]> {
  const due = outcomes.flatMap(({ intake, forward: record }) => (record === undefined ? [] : { intake, record }));
  const refused = await publishAnswers(deps, 'forward', partition, due, ({ record }) => record);
  deps.observe.forwarded(due.length - refused.length);
  return refused.map(({ item: { intake }, reason, cause }) => {
    const remedy = `workers need write access to ${deps.requestTopic}`;
    if (cause === 'topic') {
      throw new IdallocError('TOPIC_INVALID', `requests can't be forwarded: ${reason}; ${remedy}`);
    }
    const id = idKind(intake.address);
    const message = `the request could not be forwarded to the partition of its ${id}: ${reason}; send it with the ${id} as its key`;
    return refuse(deps, intake, { code: 'MISROUTED', message });
  });
}

/** A dead letter that its topic rejects, because its headers made it too large, is sent without the record. */
async function publishDeadLetters(
  deps: PipelineDeps,
  partition: number,
  rejections: readonly Rejection[],
): Promise<void> {
  const letters = lettersFor(deps, partition, rejections);
  const refused = await publish(deps, 'dead_letter', partition, letters, ({ outgoing }) => outgoing);
  const [failed] = await publish(deps, 'dead_letter', partition, refused, ({ item }) => bareLetter(item.outgoing));
  if (failed !== undefined) {
    throw new IdallocError(
      'TOPIC_INVALID',
      `the dead-letter topic ${deps.deadLetterTopic} can't take a record: ${failed.reason}`,
    );
  }
  for (const { code, records, first } of letters) deps.observe.deadLettered(code, records, exampleOf(partition, first));
}

/**
 * The answers to the requests of a part, in order. A request that had its batch before is charged for the reply, and if
 * the quota is used up it is told so instead: the batch stays decided, and a later request gets it.
 */
function answersOf(
  deps: ChargeDeps,
  partition: number,
  part: readonly Accepted[],
  decisions: readonly Decision[],
): Answer[] {
  // The last answer to each request, and no earlier one: a requester that reads on must not find an old record's
  // answer to be the last.
  const given = hasTwins(part) ? new Map<string, string>() : undefined;
  const isGiven = (accepted: Accepted, decision: Decision) =>
    given?.get(nameOfRequest(accepted)) === nameOfAnswer(accepted, decision);
  return part.map((accepted, at) => {
    const decided = decisions[at] as Decision;
    const isReplay = decided.kind === 'batch' && decided.replayed && !isGiven(accepted, decided);
    const decision = (isReplay ? charged(deps, partition, accepted, decided.entry) : undefined) ?? decided;
    const isRepeated = decision.kind !== 'elsewhere' && isGiven(accepted, decision);
    given?.set(nameOfRequest(accepted), nameOfAnswer(accepted, decision));
    return { decision, isRepeated };
  });
}

/**
 * Equal for requests whose answers, if they are the same, differ in nothing but the trace, and go to the same partition
 * of the same topic.
 */
function nameOfRequest({ name, hash, request, correlation }: Accepted): string {
  const { encoding, framing, replyPartition, requestId } = request;
  const fields = [encoding, framing, replyPartition, hash.toString('hex')];
  if (requestId !== undefined) fields.push(correlation.toString('hex')); // which the key does not show
  return [...fields, name].join(' ');
}

/** One that is refused may be sent again, so that its end matters as well. */
function nameOfAnswer({ request: { expiresAtMs } }: Accepted, decision: Decision): string {
  return decision.kind === 'refused' ? `${decision.code} ${expiresAtMs}` : decision.kind;
}

interface PublishDeps {
  readonly publisher: Publisher;
  readonly timeStep: TimeStep;
}

type Undelivered<T> = Extract<Delivery, { readonly ok: false }> & { readonly item: T };

/** Publishes the record of each item. Resolves to the items whose records were rejected, in order, with the reasons. */
async function publish<T>(
  { publisher, timeStep }: PublishDeps,
  step: Parameters<TimeStep>[0],
  partition: number,
  items: readonly T[],
  recordOf: (item: T) => OutgoingRecord,
): Promise<Undelivered<T>[]> {
  if (items.length === 0) return [];
  const deliveries = await timeStep(step, () => publisher.publish(items.map(recordOf), partition));
  const refused: Undelivered<T>[] = [];
  items.forEach((item, i) => {
    const delivery = deliveries[i];
    if (delivery?.ok === false) refused.push({ ...delivery, item });
  });
  return refused;
}

/** Publishes as `publish` does, as a step in the traces of the requests that get the records. */
async function publishAnswers<T extends { readonly intake: Intake }>(
  deps: PublishDeps & { readonly trace: PartTrace },
  step: 'reply' | 'forward',
  partition: number,
  items: readonly T[],
  recordOf: (item: T) => OutgoingRecord,
): Promise<Undelivered<T>[]> {
  if (items.length === 0) return [];
  const requests = () => items.map(({ intake }) => intake.record);
  return deps.trace.step(step, requests, () => publish(deps, step, partition, items, recordOf));
}
