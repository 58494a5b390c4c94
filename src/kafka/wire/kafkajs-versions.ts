import { KafkaError } from './kafka-error.ts';
import type { WireConnection } from './kafkajs-connection.ts';
import { requireSuccess } from './kafkajs-errors.ts';
import type { ApiVersions } from './kafkajs-modules.ts';
import { apiKeys, requests } from './kafkajs-requests.ts';

const GREETING_VERSION = 2;
/**
 * Requests used in one version only: those that we encode or decode ourselves, and JoinGroup for static membership. All
 * brokers of Kafka 2.3 or later have these versions.
 */
const FIXED: Readonly<Record<string, number>> = { Produce: 7, Fetch: 11, JoinGroup: 5 };
const USED = [
  'Metadata',
  'ListOffsets',
  'GroupCoordinator',
  'SyncGroup',
  'Heartbeat',
  'LeaveGroup',
  'OffsetCommit',
  'OffsetFetch',
  'CreateTopics',
  'DescribeConfigs',
  'DescribeGroups',
] as const;

/** Requests the versions that a broker supports. Throws UNSUPPORTED_VERSION if a call of the port has none. */
export async function agreeOnVersions(connection: WireConnection): Promise<ApiVersions> {
  const { request, response } = requests.ApiVersions.protocol({ version: GREETING_VERSION })();
  type Decoded = Awaited<ReturnType<typeof response.decode>>;
  const { errorCode, apiVersions } = await connection.send({
    request,
    response: { decode: response.decode, parse: async (decoded: Decoded) => decoded },
    logResponseError: false,
  });
  requireSuccess(errorCode);
  const supported: ApiVersions = Object.fromEntries(
    apiVersions.map(({ apiKey, minVersion, maxVersion }) => [apiKey, { minVersion, maxVersion }]),
  );
  for (const [name, version] of Object.entries(FIXED))
    requireSupported(supported, name as keyof typeof apiKeys, version);
  for (const name of USED) requireSupported(supported, name, Math.max(...requests[name].versions.map(Number)), true);
  return supported;
}

function requireSupported(supported: ApiVersions, name: keyof typeof apiKeys, newest: number, orOlder = false): void {
  const broker = supported[apiKeys[name]];
  const isSupported = broker !== undefined && newest >= broker.minVersion && (orOlder || newest <= broker.maxVersion);
  if (isSupported) return;
  const range = broker === undefined ? 'no version' : `versions ${broker.minVersion} to ${broker.maxVersion}`;
  const message = `the broker supports ${range} of ${name}, but version ${newest} is needed: use Kafka 2.3 or later`;
  throw new KafkaError('UNSUPPORTED_VERSION', message);
}
