import { retrying } from '../../../async/retrying.ts';
import { IdallocError } from '../../../errors.ts';
import { KafkaError } from '../../../kafka/wire/kafka-error.ts';
import type { AclRule } from '../../../kafka/wire/topic-apis.ts';
import { type Brokers, CALL_TIMEOUT_MS, PATIENT, withCode } from '../brokers.ts';

const REMEDIES: Readonly<Record<string, string>> = {
  SECURITY_DISABLED: 'the brokers have no authorizer, so every user may do everything: set authorizer.class.name first',
  CLUSTER_AUTHORIZATION_FAILED: 'this user may not grant rights: log in as a user with Alter on the cluster',
};

/**
 * Creates the rules; existing ones stay. Safe to repeat.
 *
 * @throws IdallocError KAFKA_UNAVAILABLE if the brokers reject the call or do not answer; CONFIG_INVALID for a rejected
 * login.
 */
export function grant(brokers: Brokers, rules: readonly AclRule[]): Promise<void> {
  return withCode(() => retrying(brokers.runtime, PATIENT, () => createAcls(brokers, rules)));
}

async function createAcls({ cluster }: Brokers, rules: readonly AclRule[]): Promise<void> {
  const { controllerId } = await cluster.metadata([], CALL_TIMEOUT_MS);
  const response = await cluster.call(controllerId, 'control', CALL_TIMEOUT_MS, (link) =>
    link.call('createAcls', { rules }),
  );
  const at = response.rules.findIndex(({ errorCode }) => errorCode !== undefined);
  const { errorCode, message = '' } = response.rules[at] ?? {};
  if (errorCode === undefined) return;
  const remedy = REMEDIES[errorCode];
  if (remedy !== undefined)
    throw new IdallocError('KAFKA_UNAVAILABLE', `no right was granted (${errorCode}): ${remedy}`);
  const { resource, name } = rules[at] ?? {};
  throw new KafkaError(errorCode, `the right on ${resource} ${name} was not granted: ${message || errorCode}`);
}
