import { type ChargeDeps, charged } from './charges.ts';
import type { Decision } from './decision.ts';
import { type Accepted, hasTwins } from './intake.ts';

/** What is sent for a request. */
export interface Answer {
  readonly decision: Decision;
  /** The equal request before this one has this answer, reply or dead letter, so this one needs none of its own. */
  readonly isRepeated: boolean;
}

/**
 * The answers to the requests of a part, in order. A request that had its batch before is charged for the reply, and if
 * the quota is used up it is told so instead: the batch stays decided, and a later request gets it.
 */
export function answersOf(
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
function nameOfRequest({ name, hash, request }: Accepted): string {
  const { encoding, framing, replyPartition, requestId, correlationId } = request;
  const fields = [encoding, framing, replyPartition, hash.toString('hex')];
  if (requestId !== undefined) fields.push(correlationId.toString('hex')); // which the key does not show
  return [...fields, name].join(' ');
}

/** One that is refused may be sent again, so that its end matters as well. */
function nameOfAnswer({ request: { expiresAtMs } }: Accepted, decision: Decision): string {
  return decision.kind === 'refused' ? `${decision.code} ${expiresAtMs}` : decision.kind;
}
