/** Which topics a request may name for its reply. */
export interface ReplyPolicy {
  /** Topics under this prefix are allowed. */
  readonly prefix: string;
  readonly requestTopic: string;
  /** The worker's own topics: never a reply topic, even under the prefix. */
  readonly ownTopics: readonly string[];
}

/** Kafka's own rule for topic names, so that a bad name never reaches a client library. */
const TOPIC_NAME = /^[A-Za-z0-9._-]{1,249}$/;

/** The topic that NestJS's ClientKafka listens on for replies to `requestTopic`. */
export function nestReplyTopic(requestTopic: string): string {
  return `${requestTopic}.reply`;
}

/** Why `topic` may not be written to, naming what would be allowed; undefined when it may. */
export function refuseReplyTopic(topic: string, policy: ReplyPolicy): string | undefined {
  if (!TOPIC_NAME.test(topic) || topic === '.' || topic === '..') return 'the reply topic is not a legal topic name';
  if (topic.startsWith('__')) return `the reply topic ${topic} is internal to Kafka`;
  if (policy.ownTopics.includes(topic)) return `the reply topic ${topic} belongs to the allocator itself`;
  const nest = nestReplyTopic(policy.requestTopic);
  if (topic === nest || (topic.startsWith(policy.prefix) && topic.length > policy.prefix.length)) return undefined;
  return `the reply topic ${topic} is not allowed: name one that begins with ${policy.prefix}, or ${nest}`;
}
