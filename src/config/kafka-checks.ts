import { LEDGER_MARGIN_MS, REQUEST_SEGMENT_MS } from '../adapters/kafka/topics/plan.ts';
import type { RegistrySettings } from '../adapters/registry/schema-registry.ts';
import { DEFAULT_HEADER_NAMES } from '../codec/request-headers.ts';
import type { KafkaSettings } from '../kafka/wire/settings.ts';
import type { Environment, Faults } from './parse.ts';
import type { KafkaValues } from './variables.ts';

/** Follows from the ID space, so that who shares the one reads what the others reserved. */
export function witnessTopic({ ID_SPACE }: Pick<KafkaValues, 'ID_SPACE'>): string {
  return `${ID_SPACE}.witness`;
}

/** Replies go wherever a request asks under the prefix, so no topic of ours may lie there, nor be another's. */
export function checkTopicNames(values: KafkaValues, { WITNESS_TOPIC = '' }: Environment, faults: Faults): void {
  const owners = new Map([[`${values.REQUEST_TOPIC}.reply`, 'a reply topic']]);
  const { REQUEST_TOPIC, LEDGER_TOPIC, DEAD_LETTER_TOPIC } = values;
  const topics = { REQUEST_TOPIC, LEDGER_TOPIC, DEAD_LETTER_TOPIC, ID_SPACE: witnessTopic(values) };
  for (const [name, topic] of Object.entries(topics)) {
    faults.across([name], () => {
      const owner = owners.get(topic);
      if (owner !== undefined) faults.add(name, `'${topic}' is ${owner} already`);
      owners.set(topic, name);
    });
    faults.across([name, 'REPLY_TOPIC_PREFIX'], () => {
      const lies = topic.startsWith(values.REPLY_TOPIC_PREFIX);
      if (lies) faults.add(name, `'${topic}' must not start with REPLY_TOPIC_PREFIX '${values.REPLY_TOPIC_PREFIX}'`);
    });
  }
  faults.across(['ID_SPACE'], () => {
    if (WITNESS_TOPIC === '' || WITNESS_TOPIC === topics.ID_SPACE) return;
    faults.add('WITNESS_TOPIC', `is '${topics.ID_SPACE}' by ID_SPACE, not '${WITNESS_TOPIC}': set ID_SPACE alone`);
  });
}

export function checkRetention(values: KafkaValues, faults: Faults): void {
  faults.across(['REQUEST_RETENTION_MS', 'LEDGER_RETENTION_MS'], () => {
    const { REQUEST_RETENTION_MS: requests, LEDGER_RETENTION_MS: ledger } = values;
    if (ledger === -1) return;
    const least = requests === -1 ? -1 : requests + REQUEST_SEGMENT_MS + LEDGER_MARGIN_MS;
    if (least !== -1 && ledger >= least) return;
    faults.add('LEDGER_RETENTION_MS', `must be at least ${least}, for REQUEST_RETENTION_MS is ${requests}`);
  });
}

/** A header that means two things would be read as both. */
export function checkHeaders(values: KafkaValues, faults: Faults): void {
  const { count, replayed } = DEFAULT_HEADER_NAMES;
  const owners = new Map([count, replayed].map((name) => [name, `the header '${name}'`]));
  for (const name of ['CORRELATION_ID_HEADER', 'REPLY_TOPIC_HEADER', 'REPLY_PARTITION_HEADER'] as const) {
    faults.across([name], () => {
      const owner = owners.get(values[name]);
      if (owner !== undefined) faults.add(name, `must differ from ${owner}`);
      owners.set(values[name], name);
    });
  }
}

export function checkTls(values: KafkaValues, faults: Faults): void {
  faults.across(['KAFKA_TLS', 'KAFKA_CA', 'KAFKA_CA_FILE'], () => {
    if (values.KAFKA_CA !== undefined && !values.KAFKA_TLS) faults.add('KAFKA_TLS', 'must be 1 when KAFKA_CA is set');
  });
}

export function registryOf(values: KafkaValues, faults: Faults): RegistrySettings | undefined {
  const { SCHEMA_REGISTRY_URL: url, SCHEMA_REGISTRY_USERNAME: username, SCHEMA_REGISTRY_PASSWORD: password } = values;
  const names = ['SCHEMA_REGISTRY_URL', 'SCHEMA_REGISTRY_USERNAME', 'SCHEMA_REGISTRY_PASSWORD'];
  faults.across([...names, 'SCHEMA_REGISTRY_PASSWORD_FILE'], () => {
    const hasLogin = username !== undefined || password !== undefined;
    if (hasLogin && url === undefined)
      faults.add('SCHEMA_REGISTRY_URL', 'is required when its user or password is set');
    if (hasLogin && username === undefined) faults.add('SCHEMA_REGISTRY_USERNAME', 'is required with the password');
    if (hasLogin && password === undefined) faults.add('SCHEMA_REGISTRY_PASSWORD', 'is required with the username');
  });
  if (url === undefined) return undefined;
  const auth = username === undefined || password === undefined ? {} : { auth: { username, password } };
  return { url: url.replace(/\/+$/, ''), ...auth };
}

export function saslOf(values: KafkaValues, faults: Faults): KafkaSettings['sasl'] {
  const { KAFKA_SASL_MECHANISM: mechanism, KAFKA_SASL_USERNAME: username, KAFKA_SASL_PASSWORD: password } = values;
  const names = ['KAFKA_SASL_MECHANISM', 'KAFKA_SASL_USERNAME', 'KAFKA_SASL_PASSWORD', 'KAFKA_SASL_PASSWORD_FILE'];
  faults.across(names, () => {
    if (mechanism === undefined && (username !== undefined || password !== undefined)) {
      faults.add('KAFKA_SASL_MECHANISM', 'is required when a username or password is set');
    }
    if (mechanism === undefined) return;
    if (username === undefined) faults.add('KAFKA_SASL_USERNAME', 'is required when KAFKA_SASL_MECHANISM is set');
    if (password === undefined) faults.add('KAFKA_SASL_PASSWORD', 'is required when KAFKA_SASL_MECHANISM is set');
  });
  if (mechanism === undefined || username === undefined || password === undefined) return undefined;
  return { mechanism, username, password };
}
