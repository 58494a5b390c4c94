import type { ReplyPolicy } from '../codec/reply-policy.ts';
import type { HeaderNames } from '../codec/request-headers.ts';
import { ERRORS, type ErrorCode, IdallocError } from '../errors.ts';
import { type Answer, answersOf } from './answers.ts';
import { chargeOf } from './charges.ts';
import { withSchemas } from './confluent.ts';
import { type Decision, type DecisionDeps, decide } from './decide.ts';
import type { Deferrals } from './deferred.ts';
import { type Accepted, type Intake, receive } from './intake.ts';
import { bareLetter, batchReply, deadLetter, errorReply, forwarded, type OutgoingContext } from './outgoing.ts';
import { cutIntoParts, isLarge, PART_MAX_REQUESTS } from './parts.ts';
import type { Delivery, OutgoingRecord, Publisher, RequestRecord } from './ports.ts';
import type { Slots } from './slots.ts';

/** How many parts with large requests may queue for IDs at a time: one more than keeps the generator busy. */
export const LARGE_AT_ONCE = 2;

export interface PipelineDeps extends DecisionDeps, OutgoingContext {
  readonly names: HeaderNames;
  readonly replyPolicy: ReplyPolicy;
  readonly publisher: Publisher;
  /** Shared by the worker's partitions; each part with large requests takes one. */
  readonly largeSlots: Slots;
  readonly observe: PipelineObserver;
}

/** Receives the events of the pipeline, for metrics. */
interface PipelineObserver {
  /** The batches of a part were settled; their replies have not been sent yet. */
  served(part: Served): void;
  /** This many replies were acknowledged, error replies included. */
  replied(replies: number): void;
  failed(code: ErrorCode): void;
  deadLettered(code: ErrorCode): void;
  /** This many requests were appended to their home partitions. */
  forwarded(requests: number): void;
}

/** How many requests got a new batch, how many their batch again, and how many IDs the new batches hold. */
interface Served {
  readonly issued: number;
  readonly replayed: number;
  readonly ids: number;
}

/** How a session observes and stops the work on its batch. */
export interface BatchControl {
  /** False once the session has ended or the gate has closed; undecided requests are then left for later. */
  readonly isCurrent: () => boolean;
  /** Everything up to this request offset has been answered or dead-lettered, and acknowledged, or deferred. */
  readonly resolved: (offset: number) => void;
  /** Takes large requests, so that those after them need not wait; if absent, they are served in their places. */
  readonly deferrals?: Deferrals;
}

/**
 * Processes a record batch of one request partition up to acknowledged replies, part by part, in order.
 *
 * Rejects on a retryable error; resolved parts stay resolved, and the rest must be delivered again.
 */
export async function processBatch(
  deps: PipelineDeps,
  partition: number,
  records: readonly RequestRecord[],
  control: BatchControl,
): Promise<void> {
  const step = deps.schemas === undefined ? records.length : PART_MAX_REQUESTS;
  for (let from = 0; from < records.length && control.isCurrent(); from += step) {
    const { ready, error } = await withSchemas(deps.schemas, records.slice(from, from + step), partition);
    await processReadable(deps, partition, ready, control);
    if (error !== undefined) throw error;
  }
}

async function processReadable(
  deps: PipelineDeps,
  partition: number,
  records: readonly RequestRecord[],
  control: BatchControl,
): Promise<void> {
  const { layout } = deps;
  const intakes = records.values().map((record) => receive(record, deps.names, deps.replyPolicy, deps.schemas));
  let through = -1;
  for (const part of cutIntoParts(intakes, { layout, idsFor: idsFor(deps, partition), deferrals: control.deferrals })) {
    if (!control.isCurrent()) return;
    const last = part.at(-1);
    if (last === undefined) continue;
    await processPart(deps, partition, part);
    control.resolved(last.record.offset);
    through = last.record.offset;
  }
  const end = records.at(-1)?.offset ?? through;
  if (end > through && control.isCurrent()) control.resolved(end); // the last ones were deferred
}

/** How many IDs a request may take here: none if another partition decides it or a quota will refuse it. */
function idsFor(deps: PipelineDeps, partition: number): (accepted: Accepted) => number {
  const { homeOf, maxCount, quotas } = deps;
  return (accepted) => {
    const { correlationId, count } = accepted.request;
    if (homeOf(correlationId) !== partition) return 0;
    if (quotas?.wouldRefuse(chargeOf(deps, partition, accepted)) === true) return 0;
    return Math.min(count, maxCount);
  };
}

async function processPart(deps: PipelineDeps, partition: number, part: readonly Intake[]): Promise<void> {
  const accepted = part.filter((intake) => intake.kind === 'accepted');
  const charging = { ...deps, missing: await missingTopics(deps, partition, accepted) };
  const decisions = await decideInTurn(charging, partition, accepted);
  const answers = answersOf(charging, partition, accepted, decisions);
  deps.observe.served(countServed(answers));
  let next = 0; // index into the answers, which follow the order of the accepted requests
  const outcomes = part.map((intake) => {
    return outcomeOf(deps, partition, intake, intake.kind === 'accepted' ? answers[next++] : undefined);
  });
  const work = [publishReplies(deps, partition, outcomes), forward(deps, partition, outcomes)] as const;
  await Promise.allSettled(work); // so that nothing is still in progress if one fails
  const [undelivered, unforwarded] = await Promise.all(work);
  const letters = [...outcomes, ...unforwarded].flatMap(({ letter }) => letter ?? []);
  letters.push(...undelivered, ...(await publishReplies(deps, partition, unforwarded)));
  await publishDeadLetters(deps, letters);
  deps.quotas?.answered(partition, part);
}

/** The reply topics of requests that are decided here which have a quota but do not exist. */
async function missingTopics(
  { quotas, homeOf }: PipelineDeps,
  partition: number,
  part: readonly Accepted[],
): Promise<ReadonlySet<string> | undefined> {
  const here = part.filter(({ request }) => homeOf(request.correlationId) === partition);
  return await quotas?.missing(new Set(here.map(({ request }) => request.replyTopic)));
}

/**
 * A part with a large request takes a slot before its partition's turn, which small requests need meanwhile, and releases
 * it once it has its IDs.
 */
async function decideInTurn(deps: PipelineDeps, partition: number, part: readonly Accepted[]): Promise<Decision[]> {
  const ids = idsFor(deps, partition);
  if (!part.some((accepted) => isLarge(deps.layout, ids(accepted)))) {
    return await deps.ledger.inTurn(partition, () => decide(deps, partition, part));
  }
  const release = await deps.largeSlots.take();
  const allocator = { allocate: (counts: readonly number[]) => deps.allocator.allocate(counts).finally(release) };
  try {
    return await deps.ledger.inTurn(partition, () => decide({ ...deps, allocator }, partition, part));
  } finally {
    release();
  }
}

function countServed(answers: readonly Answer[]): Served {
  const served = { issued: 0, replayed: 0, ids: 0 };
  for (const { decision } of answers) {
    if (decision.kind !== 'batch') continue;
    if (decision.replayed) served.replayed += 1;
    else {
      served.issued += 1;
      served.ids += decision.entry.count;
    }
  }
  return served;
}

/** The outcome for one record: a reply if its sender can be reached, a dead letter if the record is bad. */
interface Outcome {
  readonly intake: Intake;
  readonly reply?: OutgoingRecord | undefined;
  readonly letter?: OutgoingRecord | undefined;
  /** The request itself, for its home partition. */
  readonly forward?: OutgoingRecord | undefined;
}

function outcomeOf(deps: PipelineDeps, partition: number, intake: Intake, answer: Answer | undefined): Outcome {
  const decision = answer?.decision;
  if (answer?.isRepeated === true) {
    if (decision?.kind === 'refused') deps.observe.failed(decision.code);
    return { intake };
  }
  if (intake.kind === 'accepted' && decision?.kind === 'batch') {
    return { intake, reply: batchReply(intake, decision.entry, decision, deps) };
  }
  if (intake.kind === 'accepted' && decision?.kind === 'elsewhere') {
    return { intake, forward: forwarded(intake, { from: partition, home: decision.home }, deps) };
  }
  const refusal = decision?.kind === 'refused' ? decision : intake.kind === 'rejected' ? intake : undefined;
  if (refusal === undefined) throw new RangeError(`no decision for the request at offset ${intake.record.offset}`);
  return refuse(deps, partition, intake, refusal);
}

function refuse(
  deps: PipelineDeps,
  partition: number,
  intake: Intake,
  refusal: { readonly code: ErrorCode; readonly message: string },
): Outcome {
  deps.observe.failed(refusal.code);
  const address = intake.kind === 'accepted' ? intake.request : intake.address;
  const letter = ERRORS[refusal.code].deadLetter ? deadLetter(intake.record, partition, refusal, deps) : undefined;
  if (letter !== undefined) deps.observe.deadLettered(refusal.code);
  const reply = refusal.code === 'REPLY_UNDELIVERABLE' ? undefined : errorReply(address, refusal, deps);
  return { intake, reply, letter };
}

/** Publishes the replies; returns dead letters for the requests whose reply topic rejects the reply. */
async function publishReplies(
  deps: PipelineDeps,
  partition: number,
  outcomes: readonly Outcome[],
): Promise<OutgoingRecord[]> {
  const replies = outcomes.flatMap(({ intake, reply, letter }) =>
    reply === undefined ? [] : { intake, reply, letter },
  );
  const refused = await publish(deps, replies, ({ reply }) => reply);
  deps.observe.replied(replies.length - refused.length);
  return refused.flatMap(({ item: { intake, letter }, reason: message }) => {
    if (letter !== undefined) return [];
    deps.observe.deadLettered('REPLY_UNDELIVERABLE');
    return deadLetter(intake.record, partition, { code: 'REPLY_UNDELIVERABLE', message }, deps);
  });
}

/**
 * Appends requests to their home partitions. Returns a refusal for a record that the topic rejects, because its headers
 * made it too large. Rejects with TOPIC_INVALID when the topic accepts no record: requests must not be lost.
 */
async function forward(deps: PipelineDeps, partition: number, outcomes: readonly Outcome[]): Promise<Outcome[]> {
  const due = outcomes.flatMap(({ intake, forward: record }) => (record === undefined ? [] : { intake, record }));
  const refused = await publish(deps, due, ({ record }) => record);
  deps.observe.forwarded(due.length - refused.length);
  return refused.map(({ item: { intake }, reason, cause }) => {
    const remedy = `workers need write access to ${deps.requestTopic}`;
    if (cause === 'topic') {
      throw new IdallocError('TOPIC_INVALID', `requests can't be forwarded: ${reason}; ${remedy}`);
    }
    const message = `the request could not be forwarded to the partition of its correlation ID: ${reason}; send it with the correlation ID as its key`;
    return refuse(deps, partition, intake, { code: 'MISROUTED', message });
  });
}

/** A dead letter that its topic rejects, because its headers made it too large, is sent without the record. */
async function publishDeadLetters(deps: PipelineDeps, letters: readonly OutgoingRecord[]): Promise<void> {
  const refused = await publish(deps, letters, (letter) => letter);
  const [failed] = await publish(deps, refused, ({ item }) => bareLetter(item));
  if (failed === undefined) return;
  throw new IdallocError(
    'TOPIC_INVALID',
    `the dead-letter topic ${deps.deadLetterTopic} can't take a record: ${failed.reason}`,
  );
}

type Refusal = Extract<Delivery, { readonly ok: false }>;

/** Publishes the record of each item. Resolves to the items whose records were rejected, in order, with the reasons. */
async function publish<T>(
  { publisher }: PipelineDeps,
  items: readonly T[],
  recordOf: (item: T) => OutgoingRecord,
): Promise<(Refusal & { readonly item: T })[]> {
  if (items.length === 0) return [];
  const deliveries = await publisher.publish(items.map(recordOf));
  return items.flatMap((item, i) => {
    const delivery = deliveries[i];
    return delivery === undefined || delivery.ok ? [] : [{ ...delivery, item }];
  });
}
