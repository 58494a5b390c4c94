import type { AclOperation, CreateTopicsRequest, TOPIC_APIS } from '../../../src/kafka/wire/topic-apis.ts';
import type { Broker } from './broker.ts';
import type { Handlers } from './calls.ts';
import { addressOf, describeTopic } from './view.ts';

/** There is no authorizer: every user may do everything, and no ACL can be created. */
const ALL: readonly AclOperation[] = ['Read', 'Write', 'Create', 'Describe', 'DescribeConfigs'];
const NAME = /^[a-zA-Z0-9._-]{1,249}$/;

/** The calls with which a broker describes and creates topics. */
export function topicHandlers(broker: Broker): Pick<Handlers, keyof typeof TOPIC_APIS> {
  const { cluster } = broker;
  const throttled = () => ({ throttleMs: cluster.throttleMs });
  return {
    metadata: ({ topics }, reply) => {
      const { view } = broker;
      const names = topics === 'all' ? [...view.topics.keys()] : topics;
      reply.give({
        ...throttled(),
        clusterId: cluster.clusterId,
        controllerId: view.nodes[0] ?? -1,
        brokers: view.nodes.map(addressOf),
        topics: names.map((name) => {
          if (!NAME.test(name)) return { name, errorCode: 'INVALID_TOPIC_EXCEPTION', partitions: [] };
          if (cluster.isDenied(name)) return { name, errorCode: 'TOPIC_AUTHORIZATION_FAILED', partitions: [] };
          return describeTopic(view, name);
        }),
      });
    },
    createTopics: ({ topics }, reply) => {
      reply.give({ ...throttled(), topics: topics.map((topic) => create(broker, topic)) });
    },
    describeConfigs: ({ topics }, reply) => {
      const found = topics.map((name) => {
        const known = broker.view.topics.get(name);
        if (known === undefined) return { name, errorCode: 'UNKNOWN_TOPIC_OR_PARTITION', configs: new Map() };
        if (cluster.hidesConfigs) return { name, errorCode: 'TOPIC_AUTHORIZATION_FAILED', configs: new Map() };
        return { name, configs: known.topic.configs };
      });
      reply.give({ ...throttled(), topics: found });
    },
    authorizedOperations: ({ topics }, reply) => {
      const found = topics.map((name) =>
        broker.view.topics.has(name)
          ? { name, operations: new Set(ALL) }
          : { name, errorCode: 'UNKNOWN_TOPIC_OR_PARTITION', operations: new Set<AclOperation>() },
      );
      reply.give({ ...throttled(), topics: found });
    },
    createAcls: ({ rules }, reply) => {
      reply.give({
        ...throttled(),
        rules: rules.map(() => ({ errorCode: 'SECURITY_DISABLED', message: 'no authorizer' })),
      });
    },
  };
}

function create({ cluster }: Broker, topic: CreateTopicsRequest['topics'][number]) {
  const { name, partitions, replicas, configs } = topic;
  const refuse = (errorCode: string, message: string) => ({ name, errorCode, message });
  if (!NAME.test(name)) return refuse('INVALID_TOPIC_EXCEPTION', `${name} is not a valid topic name`);
  if (cluster.topics.has(name)) return refuse('TOPIC_ALREADY_EXISTS', `topic ${name} exists`);
  if (partitions < 1) return refuse('INVALID_PARTITIONS', 'a topic needs at least one partition');
  if (replicas < 1 || replicas > cluster.liveNodes.length)
    return refuse('INVALID_REPLICATION_FACTOR', `${replicas} replicas on ${cluster.liveNodes.length} brokers`);
  cluster.createTopic(name, { partitions, replicas, configs });
  return { name };
}
