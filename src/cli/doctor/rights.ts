import { CALL_TIMEOUT_MS, callAnyBroker } from '../../adapters/kafka/brokers.ts';
import type { Source } from '../../adapters/kafka/topics/offsets.ts';
import { cliReplyTopic } from '../../adapters/kafka/topics/plan.ts';
import { type Right, rightsOf } from '../../adapters/kafka/topics/rights.ts';
import type { Config } from '../../config/config.ts';
import { describeError } from '../../errors.ts';
import type { AuthorizedOperationsResponse } from '../../kafka/wire/topic-apis.ts';
import { counted } from '../table.ts';
import { type Check, fault, ok, warn } from './checks.ts';

const NAME = 'rights';
export const GRANT = 'idalloc topics acls --principal User:… --role worker';
const MAX_NAMED = 10;

/** Checks whether the configured user has the rights that a worker needs. */
export async function checkRights(source: Source, config: Pick<Config, 'topics' | 'groupId'>): Promise<Check> {
  const rights = rightsOf('worker', config);
  const { replyPrefix } = config.topics;
  try {
    const { topics: all } = await source.cluster.metadata('all', CALL_TIMEOUT_MS);
    const replies = all.map(({ name }) => name).filter((name) => name.startsWith(replyPrefix));
    const named = rights.filter(({ resource, pattern }) => resource === 'topic' && pattern === 'literal');
    const topics = [...new Set([...named.map(({ name }) => name), cliReplyTopic(config.topics), ...replies])];
    const response = await callAnyBroker<AuthorizedOperationsResponse>(source, (link) =>
      link.call('authorizedOperations', { topics }),
    );
    return judgeRights(rights, response.topics, replyPrefix);
  } catch (error) {
    return warn(NAME, `unknown: ${describeError(error)}`, `compare them with what '${GRANT}' prints`);
  }
}

/**
 * Compares the rights that the brokers report with those that are needed. A user without Write on any topic is not a
 * worker's, so its rights say nothing about a worker. The right to write to all topics under the prefix shows only on
 * topics that exist.
 */
export function judgeRights(
  rights: readonly Right[],
  topics: AuthorizedOperationsResponse['topics'],
  replyPrefix: string,
): Check {
  const existing = topics.filter(({ errorCode: why }) => why !== 'UNKNOWN_TOPIC_OR_PARTITION');
  const lacks = existing.flatMap(({ name, operations }) => {
    const needed = rights.filter((right) => isAbout(right, name)).flatMap((right) => right.operations);
    const lacking = needed.filter((operation) => !operations.has(operation));
    return lacking.length === 0 ? [] : [`${lacking.join(', ')} on '${name}'`];
  });
  if (lacks.length > 0 && !existing.some(({ operations }) => operations.has('Write'))) {
    const detail =
      "this user can't write to any topic, so it is not a worker's: the rights of a worker's user can't be known";
    return warn(NAME, detail, "run this with the worker's login");
  }
  if (lacks.length > 0) {
    const shown = lacks.slice(0, MAX_NAMED).join('; ');
    const more = lacks.length > MAX_NAMED ? ` and ${lacks.length - MAX_NAMED} more` : '';
    return fault(NAME, `missing: ${shown}${more}`, GRANT);
  }
  const replies = existing.filter(({ name }) => name.startsWith(replyPrefix)).length;
  if (replies === 0) {
    const detail = `no topic begins with '${replyPrefix}', so the right to write replies can't be checked`;
    return warn(NAME, detail, 'create a reply topic (idalloc topics init --reply-topic), and run this again');
  }
  return ok(NAME, `all worker rights granted, including ${counted(replies, 'reply topic')}`);
}

function isAbout({ resource, pattern, name }: Right, topic: string): boolean {
  return resource === 'topic' && (pattern === 'literal' ? name === topic : topic.startsWith(name));
}
