/**
 * What replies say about requests that are refused, the same from a worker and from the workers in memory of a
 * service's tests.
 */

/** What a request asks for under its ID. */
interface Asked {
  readonly count: number;
  readonly replyTopic: string;
}

export function expiredText(expiresAtMs: number): string {
  return `the request expired at ${new Date(expiresAtMs).toISOString()} and has no batch: send a new one`;
}

export function tooManyText(count: number, maxCount: number): string {
  return `count ${count} is above ${maxCount}, the largest batch of one request: send several requests`;
}

/**
 * Of IDs. It names what differs, but not the other request's values, for it may be another requester's: `isOwn` is for
 * an ID that has its caller in it. `kind` is that of the ID.
 */
export function conflictText(decided: Asked, request: Asked, kind: string, isOwn: boolean): string {
  const both = (here: unknown, there: unknown) => `(here ${here}${isOwn ? `, there ${there}` : ''})`;
  const differing = [
    ...(decided.count === request.count ? [] : [`count ${both(request.count, decided.count)}`]),
    ...(decided.replyTopic === request.replyTopic
      ? []
      : [`reply_topic ${both(request.replyTopic, decided.replyTopic)}`]),
  ];
  return `this ${kind} was used for another request; it differs in ${differing.join(' and ')}: use a new ${kind}`;
}

/**
 * Numbers are those of a document, and whoever names the document and the sequence has to learn what it has: another ID
 * for the document would give it a second number. `id` is the ID as text.
 */
export function numbersConflictText(decided: Asked, id: string, sequence: string | undefined): string {
  const { count, replyTopic } = decided;
  const numbers = `${count} ${count === 1 ? 'number' : 'numbers'} of ${sequence}`;
  return `${id} has ${numbers}, on ${replyTopic}: ask for the same count on that topic`;
}

export function unknownSequenceText(name: string): string {
  return `there is no sequence ${name}: create it with 'idalloc sequence create ${name}'`;
}

/** `used`: the rates that are used up. */
export function quotaText(prefix: string, used: string, retryAfterMs: number): string {
  return `the quota of reply topics under ${prefix} is used up (${used}): send the request again after ${retryAfterMs} ms`;
}
