import { type ChargeDeps, charged } from './charges.ts';
import type { Decision } from './decision.ts';
import { type Accepted, hasTwins } from './intake.ts';

/** What is sent for a request. */
export interface Answer {
  readonly decision: Decision;
  /** An equal request of the part has this answer, reply or dead letter, so this one needs none of its own. */
  readonly isRepeated: boolean;
}

/**
 * The answers to the requests of a part, in order. A request that had its batch before is charged for the reply, and if the
 * quota is used up it is told so instead: the batch stays decided, and a later request gets it.
 */
export function answersOf(
  deps: ChargeDeps,
  partition: number,
  part: readonly Accepted[],
  decisions: readonly Decision[],
): Answer[] {
  const given = hasTwins(part) ? new Set<string>() : undefined;
  const isGiven = (accepted: Accepted, decision: Decision) => given?.has(nameOfAnswer(accepted, decision)) === true;
  return part.map((accepted, at) => {
    const decided = decisions[at] as Decision;
    const isReplay = decided.kind === 'batch' && decided.replayed && !isGiven(accepted, decided);
    const decision = (isReplay ? charged(deps, partition, accepted, decided.entry) : undefined) ?? decided;
    const isRepeated = decision.kind !== 'elsewhere' && isGiven(accepted, decision);
    given?.add(nameOfAnswer(accepted, decision));
    return { decision, isRepeated };
  });
}

/**
 * Equal for answers that differ in nothing but the trace of their requests, and go to the same partition of the same topic.
 * One that is refused may be sent again, so that its end matters as well.
 */
function nameOfAnswer({ name, hash, request }: Accepted, decision: Decision): string {
  const { encoding, framing, replyPartition, expiresAtMs, requestId, correlationId } = request;
  const what = decision.kind === 'refused' ? [decision.code, expiresAtMs] : [decision.kind];
  const fields = [...what, encoding, framing, replyPartition, hash.toString('hex')];
  if (requestId !== undefined) fields.push(correlationId.toString('hex')); // which the key does not show
  return [...fields, name].join(' ');
}
