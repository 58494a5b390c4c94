/**
 * What the chart uses of Strimzi's KafkaTopic and KafkaUser, by its documentation. No package registry has Strimzi's
 * own definitions, which know more fields.
 */
const text = { type: 'string' };
const oneOf = (...values: readonly string[]) => ({ type: 'string', enum: values });
const object = (properties: Readonly<Record<string, unknown>>, required: readonly string[]) => {
  return { type: 'object', properties, required };
};

const topic = object(
  {
    topicName: text,
    partitions: { type: 'integer', minimum: 1 },
    replicas: { type: 'integer', minimum: 1, maximum: 32_767 },
    config: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
  },
  [],
);
const resource = object(
  { type: oneOf('topic', 'group', 'cluster', 'transactionalId'), name: text, patternType: oneOf('literal', 'prefix') },
  ['type'],
);
const operation = oneOf(
  ...['Read', 'Write', 'Create', 'Delete', 'Alter', 'Describe', 'ClusterAction'],
  ...['AlterConfigs', 'DescribeConfigs', 'IdempotentWrite', 'All'],
);
const acl = object({ resource, host: text, operations: { type: 'array', items: operation } }, [
  'resource',
  'operations',
]);
const user = object(
  {
    authentication: object({ type: oneOf('tls', 'tls-external', 'scram-sha-512') }, ['type']),
    authorization: object({ type: oneOf('simple'), acls: { type: 'array', items: acl } }, ['type', 'acls']),
  },
  [],
);

function definitionOf(kind: string, spec: unknown) {
  const plural = `${kind.toLowerCase()}s`;
  const schema = { openAPIV3Schema: { type: 'object', properties: { spec }, required: ['spec'] } };
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.kafka.strimzi.io` },
    spec: {
      group: 'kafka.strimzi.io',
      names: { kind, listKind: `${kind}List`, singular: kind.toLowerCase(), plural },
      scope: 'Namespaced',
      versions: [{ name: 'v1', served: true, storage: true, schema }],
    },
  };
}

export const STRIMZI = [definitionOf('KafkaTopic', topic), definitionOf('KafkaUser', user)];
