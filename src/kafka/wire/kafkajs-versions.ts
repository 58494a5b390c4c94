import type { Api } from './api.ts';
import { APIS } from './apis.ts';
import { KafkaError } from './kafka-error.ts';
import type { WireConnection } from './kafkajs-connection.ts';
import { requireSuccess } from './kafkajs-errors.ts';
import { type ApiVersions, definitionOf, type Protocol } from './kafkajs-modules.ts';

interface DecodedVersions {
  readonly errorCode: number;
  readonly apiVersions: readonly {
    readonly apiKey: number;
    readonly minVersion: number;
    readonly maxVersion: number;
  }[];
}

const GREETING_VERSION = 2;

/** Requests the versions that a broker supports. Throws UNSUPPORTED_VERSION if an API that is used has none. */
export async function agreeOnVersions(connection: WireConnection): Promise<ApiVersions> {
  const supported = await versionsOf(connection, GREETING_VERSION);
  for (const api of Object.values(APIS)) requireSupported(supported, api);
  return supported;
}

/** Requests them in this version of ApiVersions. */
export async function versionsOf(connection: WireConnection, version: number): Promise<ApiVersions> {
  const greeting = definitionOf('ApiVersions').protocol({ version })({});
  const { request, response } = greeting as Protocol<DecodedVersions>;
  const asDecoded = { decode: response.decode, parse: async (decoded: DecodedVersions) => decoded };
  const { errorCode, apiVersions } = await connection.send({ request, response: asDecoded, logResponseError: false });
  requireSuccess(errorCode);
  return Object.fromEntries(
    apiVersions.map(({ apiKey, minVersion, maxVersion }) => [apiKey, { minVersion, maxVersion }]),
  );
}

function requireSupported(
  supported: ApiVersions,
  api: Pick<Api<never, never>, 'name' | 'key' | 'version' | 'isOptional'>,
): void {
  const { name, key, version, isOptional } = api;
  const broker = supported[key];
  const newest = version ?? Math.max(...definitionOf(name).versions.map(Number));
  const isSupported =
    broker !== undefined && newest >= broker.minVersion && (version === undefined || version <= broker.maxVersion);
  if (isSupported || isOptional) return;
  const range = broker === undefined ? 'no version' : `versions ${broker.minVersion} to ${broker.maxVersion}`;
  const message = `the broker supports ${range} of ${name}, but version ${newest} is needed: use Kafka 2.3 or later`;
  throw new KafkaError('UNSUPPORTED_VERSION', message);
}
