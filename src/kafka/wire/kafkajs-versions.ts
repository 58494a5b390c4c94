import { KafkaFault } from './fault.ts';
import type { WireConnection } from './kafkajs-connection.ts';
import { requireNone } from './kafkajs-faults.ts';
import { type ApiVersions, apiKeys, requests } from './kafkajs-modules.ts';

const GREETING_VERSION = 2;
/**
 * The version that is the only one used here: what we read or write ourselves, and static membership. A broker has all
 * of them from Kafka 2.3 on.
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

/** Asks for the versions that a broker speaks. Throws UNSUPPORTED_VERSION where a call of the port would have none. */
export async function agreeOnVersions(connection: WireConnection): Promise<ApiVersions> {
  const { request, response } = requests.ApiVersions.protocol({ version: GREETING_VERSION })();
  type Decoded = Awaited<ReturnType<typeof response.decode>>;
  const { errorCode, apiVersions } = await connection.send({
    request,
    response: { decode: response.decode, parse: async (decoded: Decoded) => decoded },
    logResponseError: false,
  });
  requireNone(errorCode);
  const spoken: ApiVersions = Object.fromEntries(
    apiVersions.map(({ apiKey, minVersion, maxVersion }) => [apiKey, { minVersion, maxVersion }]),
  );
  for (const [name, version] of Object.entries(FIXED)) requireSpoken(spoken, name as keyof typeof apiKeys, version);
  for (const name of USED) requireSpoken(spoken, name, Math.max(...requests[name].versions.map(Number)), true);
  return spoken;
}

function requireSpoken(spoken: ApiVersions, name: keyof typeof apiKeys, newest: number, orOlder = false): void {
  const broker = spoken[apiKeys[name]];
  const isSpoken = broker !== undefined && newest >= broker.minVersion && (orOlder || newest <= broker.maxVersion);
  if (isSpoken) return;
  const range = broker === undefined ? 'none' : `${broker.minVersion} to ${broker.maxVersion}`;
  const message = `of ${name} it speaks ${range}, but version ${newest} is needed: Kafka 2.3 is the oldest that will do`;
  throw new KafkaFault('UNSUPPORTED_VERSION', message);
}
