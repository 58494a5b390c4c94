import type { DecidingEntry } from '../codec/ledger-entry.ts';
import type { Layout } from '../core/layout.ts';
import type { Refused } from './decision.ts';
import type { Accepted } from './intake.ts';
import { estimatedReplyBytes, type OutgoingContext } from './outgoing.ts';
import type { Charge, Quotas } from './quotas.ts';

/** What a requester may cause, and how large its replies are. */
export interface ChargeDeps extends Pick<OutgoingContext, 'customLayout'> {
  readonly layout: Layout;
  /** Undefined when no quotas are configured. */
  readonly quotas?: Quotas | undefined;
  /** The reply topics of the part that do not exist: whoever names one must use up neither another's quota nor IDs. */
  readonly missing?: ReadonlySet<string> | undefined;
}

/** The cost of a request: new IDs unless it has an entry, and a reply of about the size that its batch will have. */
export function chargeOf(
  deps: ChargeDeps,
  partition: number,
  { record, request }: Accepted,
  entry?: DecidingEntry,
): Charge {
  const { sequencesPerTick, sequenceStartBelow } = deps.layout;
  const ranges =
    entry?.kind === 'batch'
      ? entry.batch.ranges.length
      : 1 + request.count / (sequencesPerTick - sequenceStartBelow + 1);
  return {
    partition,
    offset: record.offset,
    replyTopic: request.replyTopic,
    ids: entry === undefined ? request.count : 0,
    replyBytes: estimatedReplyBytes(request, Math.ceil(ranges), deps),
  };
}

/** Whether a new request would be refused for what it costs; charges nothing. */
export function wouldRefuse(deps: ChargeDeps, partition: number, accepted: Accepted): boolean {
  if (deps.missing?.has(accepted.request.replyTopic) === true) return true;
  return deps.quotas?.wouldRefuse(chargeOf(deps, partition, accepted)) === true;
}

/** The refusal of a request whose reply topic does not exist, whatever its decision is. */
export function withoutTopic({ missing }: ChargeDeps, { request: { replyTopic } }: Accepted): Refused | undefined {
  if (missing?.has(replyTopic) !== true) return undefined;
  const message = `topic ${replyTopic} does not exist or can't be seen: create it with 'idalloc topics init --reply-topic ${replyTopic}'`;
  return { kind: 'refused', code: 'REPLY_UNDELIVERABLE', message };
}

/** Charges a request for its batch, new or that of its entry; returns why it can't have it now. */
export function charged(
  deps: ChargeDeps,
  partition: number,
  accepted: Accepted,
  entry?: DecidingEntry,
): Refused | undefined {
  const undeliverable = withoutTopic(deps, accepted);
  if (undeliverable !== undefined || deps.quotas === undefined) return undeliverable;
  const excess = deps.quotas.refuse(chargeOf(deps, partition, accepted, entry));
  return excess && { kind: 'refused', code: 'QUOTA_EXCEEDED', ...excess };
}
