import { memoize } from '../core/memoize.ts';

/** Kafka's own rule for topic names. */
export const TOPIC_NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/;

/** Which topics a request may name for its reply. */
export interface ReplyPolicy {
  /** Topics under this prefix are allowed. */
  readonly prefix: string;
  readonly requestTopic: string;
  /** The worker's own topics: never a reply topic, even under the prefix. */
  readonly ownTopics: readonly string[];
  /** The topic on which the workers' HTTP API gets its replies, and no service does. */
  readonly apiReplies?: string | undefined;
}

/** The policy of a worker with these topics. */
export function replyPolicyOf(topics: {
  readonly replyPrefix: string;
  readonly requests: string;
  readonly ledger: string;
  readonly deadLetters: string;
  readonly witness: string;
  readonly apiReplies?: string | undefined;
}): ReplyPolicy {
  const { replyPrefix: prefix, requests, ledger, deadLetters, witness, apiReplies } = topics;
  return { prefix, requestTopic: requests, ownTopics: [requests, ledger, deadLetters, witness], apiReplies };
}

/** The topic on which NestJS's ClientKafka expects replies to `requestTopic`. */
export const nestReplyTopic = memoize((requestTopic) => `${requestTopic}.reply`, 100);

/** Why `topic` is not allowed, with what would be; undefined if it is allowed. */
export function replyTopicViolation(topic: string, policy: ReplyPolicy): string | undefined {
  if (lastAllowed?.topic === topic && lastAllowed.policy === policy) return undefined;
  const violation = violationOf(topic, policy);
  if (violation === undefined) lastAllowed = { topic, policy };
  return violation;
}

/** Requests that follow each other mostly name the same topic. */
let lastAllowed: { readonly topic: string; readonly policy: ReplyPolicy } | undefined;

function violationOf(topic: string, policy: ReplyPolicy): string | undefined {
  // An illegal name must never be passed to a client library.
  if (!TOPIC_NAME.test(topic)) return 'the reply topic is not a legal topic name';
  if (topic.startsWith('__')) return `the reply topic ${topic} is internal to Kafka`;
  if (policy.ownTopics.includes(topic)) return `the reply topic ${topic} belongs to the allocator itself`;
  const nest = nestReplyTopic(policy.requestTopic);
  if (topic === nest || (topic.startsWith(policy.prefix) && topic.length > policy.prefix.length)) return undefined;
  return `the reply topic ${topic} is not allowed: name one that begins with ${policy.prefix}, or ${nest}`;
}
