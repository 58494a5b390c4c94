import { LEDGER_MARGIN_MS, REQUEST_SEGMENT_MS, type TopicSettings } from '../adapters/kafka/topics/plan.ts';
import type { RegistrySettings } from '../adapters/registry/schema-registry.ts';
import { parseQuotas } from '../codec/quota.ts';
import { nestReplyTopic } from '../codec/reply-policy.ts';
import { DEFAULT_HEADER_NAMES } from '../codec/request-headers.ts';
import type { Secret } from '../core/secret.ts';
import type { KafkaSettings } from '../kafka/wire/settings.ts';
import type { ConfigErrors, Environment, VariableSource } from './parse.ts';
import type { KafkaValues } from './variables.ts';

/** Derived from the ID space, so that all its namespaces share one witness topic. */
export function witnessTopic({ ID_SPACE }: Pick<KafkaValues, 'ID_SPACE'>): string {
  return `${ID_SPACE}.witness`;
}

/** Requests choose any reply topic with the prefix, so no topic of ours may have it; and all topics must differ. */
export function checkTopicNames(values: KafkaValues, { WITNESS_TOPIC = '' }: Environment, errors: ConfigErrors): void {
  const owners = new Map([[`${values.REQUEST_TOPIC}.reply`, 'used for replies']]);
  const { REQUEST_TOPIC, LEDGER_TOPIC, DEAD_LETTER_TOPIC } = values;
  const topics = { REQUEST_TOPIC, LEDGER_TOPIC, DEAD_LETTER_TOPIC, ID_SPACE: witnessTopic(values) };
  for (const [name, topic] of Object.entries(topics)) {
    errors.ifValid([name], () => {
      const owner = owners.get(topic);
      if (owner !== undefined) errors.add(name, `'${topic}' is already ${owner}`);
      owners.set(topic, `used by ${name}`);
    });
    errors.ifValid([name, 'REPLY_TOPIC_PREFIX'], () => {
      const lies = topic.startsWith(values.REPLY_TOPIC_PREFIX);
      if (lies) errors.add(name, `'${topic}' must not start with REPLY_TOPIC_PREFIX '${values.REPLY_TOPIC_PREFIX}'`);
    });
  }
  errors.ifValid(['API_REPLY_TOPIC', 'REPLY_TOPIC_PREFIX'], () => {
    const { API_REPLY_TOPIC: replies, REPLY_TOPIC_PREFIX: prefix } = values;
    if (replies === undefined) return;
    if (!replies.startsWith(prefix) || replies === prefix)
      errors.add('API_REPLY_TOPIC', `'${replies}' must start with REPLY_TOPIC_PREFIX '${prefix}', and be longer`);
    if (replies === `${prefix}cli`) errors.add('API_REPLY_TOPIC', `'${replies}' is already used by idalloc request`);
  });
  errors.ifValid(['ID_SPACE'], () => {
    if (WITNESS_TOPIC === '' || WITNESS_TOPIC === topics.ID_SPACE) return;
    errors.add(
      'WITNESS_TOPIC',
      `is derived from ID_SPACE as '${topics.ID_SPACE}', not '${WITNESS_TOPIC}': set only ID_SPACE`,
    );
  });
}

export function checkRetention(values: KafkaValues, errors: ConfigErrors): void {
  errors.ifValid(['REQUEST_RETENTION_MS', 'LEDGER_RETENTION_MS'], () => {
    const { REQUEST_RETENTION_MS: requests, LEDGER_RETENTION_MS: ledger } = values;
    if (ledger === -1) return;
    const minimum = requests + REQUEST_SEGMENT_MS + LEDGER_MARGIN_MS;
    if (requests !== -1 && ledger >= minimum) return;
    const needed = requests === -1 ? '-1 (no limit)' : `at least ${minimum}, or -1 for no limit,`;
    errors.add('LEDGER_RETENTION_MS', `must be ${needed} when REQUEST_RETENTION_MS is ${requests}, not ${ledger}`);
  });
}

/** Each header must have one meaning. */
export function checkHeaders(values: KafkaValues, errors: ConfigErrors): void {
  const { correlationId, replyTopic, replyPartition, ...fixed } = DEFAULT_HEADER_NAMES;
  const owners = new Map(Object.values(fixed).map((name) => [name, `the header '${name}'`]));
  for (const name of ['CORRELATION_ID_HEADER', 'REPLY_TOPIC_HEADER', 'REPLY_PARTITION_HEADER'] as const) {
    errors.ifValid([name], () => {
      const owner = owners.get(values[name]);
      if (owner !== undefined) errors.add(name, `must differ from ${owner}`);
      owners.set(values[name], name);
    });
  }
}

/** CA and client certificate; they need KAFKA_TLS=1. */
export function tlsSettingsOf(
  values: KafkaValues,
  errors: ConfigErrors,
): Pick<KafkaSettings, 'ca' | 'clientCertificate'> {
  const { KAFKA_TLS: tls, KAFKA_CA: ca, KAFKA_CERT: cert, KAFKA_KEY: key } = values;
  const names = ['KAFKA_CA', 'KAFKA_CERT', 'KAFKA_KEY'].flatMap((name) => [name, `${name}_FILE`]);
  errors.ifValid(names, () => errors.requireBothOrNeither({ KAFKA_CERT: cert, KAFKA_KEY: key }));
  errors.ifValid([...names, 'KAFKA_TLS'], () => {
    const used = ca !== undefined ? 'KAFKA_CA' : cert !== undefined ? 'KAFKA_CERT' : undefined;
    if (used !== undefined && !tls) errors.add('KAFKA_TLS', `must be 1 when ${used} is set`);
  });
  return { ca, clientCertificate: cert && key && { cert, key } };
}

export function registryOf(values: KafkaValues, errors: ConfigErrors): RegistrySettings | undefined {
  const { SCHEMA_REGISTRY_URL: url, SCHEMA_REGISTRY_USERNAME: username, SCHEMA_REGISTRY_PASSWORD: password } = values;
  const names = ['SCHEMA_REGISTRY_URL', 'SCHEMA_REGISTRY_USERNAME', 'SCHEMA_REGISTRY_PASSWORD'];
  errors.ifValid([...names, 'SCHEMA_REGISTRY_PASSWORD_FILE'], () => {
    const hasLogin = username !== undefined || password !== undefined;
    if (hasLogin && url === undefined)
      errors.add('SCHEMA_REGISTRY_URL', 'is required when its username or password is set');
    if (hasLogin && username === undefined) errors.add('SCHEMA_REGISTRY_USERNAME', 'is required with the password');
    if (hasLogin && password === undefined) errors.add('SCHEMA_REGISTRY_PASSWORD', 'is required with the username');
  });
  if (url === undefined) return undefined;
  return {
    url: url.replace(/\/+$/, ''),
    auth: username === undefined ? undefined : password && { username, password },
  };
}

/** The variables of each kind of login; setting one of another kind is an error. */
const LOGINS = {
  password: ['KAFKA_SASL_USERNAME', 'KAFKA_SASL_PASSWORD'],
  oauth: ['KAFKA_OAUTH_TOKEN_URL', 'KAFKA_OAUTH_CLIENT_ID', 'KAFKA_OAUTH_CLIENT_SECRET'],
  aws: ['KAFKA_AWS_REGION'],
} as const satisfies Record<string, readonly (keyof KafkaValues)[]>;
const OAUTH_MORE = ['KAFKA_OAUTH_SCOPE', 'KAFKA_OAUTH_CA'] as const;

const kindOf = (mechanism: string): keyof typeof LOGINS =>
  mechanism === 'oauthbearer' ? 'oauth' : mechanism === 'aws-msk-iam' ? 'aws' : 'password';

export function saslOf(values: KafkaValues, errors: ConfigErrors): KafkaSettings['sasl'] {
  const { KAFKA_SASL_MECHANISM: mechanism, KAFKA_TLS: tls } = values;
  const all = [...Object.values(LOGINS).flat(), ...OAUTH_MORE];
  const files = ['KAFKA_SASL_PASSWORD_FILE', 'KAFKA_OAUTH_CLIENT_SECRET_FILE', 'KAFKA_OAUTH_CA_FILE'];
  errors.ifValid(['KAFKA_SASL_MECHANISM', 'KAFKA_TLS', ...all, ...files], () => {
    const kind = mechanism === undefined ? undefined : kindOf(mechanism);
    const needed: readonly string[] = kind === undefined ? [] : LOGINS[kind];
    for (const name of needed) {
      if (values[name as keyof KafkaValues] === undefined) {
        errors.add(name, `is required when KAFKA_SASL_MECHANISM is ${mechanism}`);
      }
    }
    const allowed: readonly string[] = kind === 'oauth' ? [...needed, ...OAUTH_MORE] : needed;
    const foreign = all.filter((name) => values[name] !== undefined && !allowed.includes(name));
    if (mechanism === undefined && foreign[0] !== undefined) {
      errors.add('KAFKA_SASL_MECHANISM', `is required when ${foreign[0]} is set`);
    }
    for (const name of mechanism === undefined ? [] : foreign) {
      errors.add(name, `is not used when KAFKA_SASL_MECHANISM is ${mechanism}`);
    }
    if (kind === 'aws' && !tls) errors.add('KAFKA_TLS', 'must be 1 when KAFKA_SASL_MECHANISM is aws-msk-iam');
  });
  return mechanism === undefined ? undefined : loginOf(mechanism, values);
}

function loginOf(mechanism: NonNullable<KafkaValues['KAFKA_SASL_MECHANISM']>, values: KafkaValues) {
  if (mechanism === 'aws-msk-iam') {
    const { KAFKA_AWS_REGION: region } = values;
    return region === undefined ? undefined : { mechanism, region };
  }
  if (mechanism === 'oauthbearer') return oauthOf(values);
  const { KAFKA_SASL_USERNAME: username, KAFKA_SASL_PASSWORD: password } = values;
  return username === undefined || password === undefined ? undefined : { mechanism, username, password };
}

function oauthOf(values: KafkaValues): KafkaSettings['sasl'] {
  const { KAFKA_OAUTH_TOKEN_URL: tokenUrl, KAFKA_OAUTH_CLIENT_ID: clientId } = values;
  const { KAFKA_OAUTH_CLIENT_SECRET: clientSecret, KAFKA_OAUTH_SCOPE: scope, KAFKA_OAUTH_CA: ca } = values;
  if (tokenUrl === undefined || clientId === undefined || clientSecret === undefined) return undefined;
  return { mechanism: 'oauthbearer', oauth: { tokenUrl, clientId, clientSecret, scope, ca } };
}

/** A quota that matches no reply topic would silently limit nothing. Texts that replace the first are checked, too. */
export function checkQuotas(
  quotas: Secret | undefined,
  { requests, replyPrefix }: TopicSettings,
  { errors, secretFiles }: VariableSource,
): void {
  const nest = nestReplyTopic(requests);
  const problemOf = (text: string): string | undefined => {
    const idle = parseQuotas(text).find(({ prefix }) => !prefix.startsWith(replyPrefix) && !nest.startsWith(prefix));
    if (idle === undefined) return undefined;
    return `has '${idle.prefix}', which matches no allowed reply topic: it must start with REPLY_TOPIC_PREFIX '${replyPrefix}'`;
  };
  errors.ifValid(['QUOTAS', 'QUOTAS_FILE', 'REQUEST_TOPIC', 'REPLY_TOPIC_PREFIX'], () => {
    const problem = quotas === undefined ? undefined : problemOf(quotas());
    if (problem !== undefined) errors.add('QUOTAS', problem);
    secretFiles.find(({ variable }) => variable === 'QUOTAS_FILE')?.alsoCheck(problemOf);
  });
}
