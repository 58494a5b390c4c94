import { isIP } from 'node:net';
import type { RegistrySettings } from '../adapters/registry/schema-registry.ts';
import type { KafkaSettings } from '../kafka/wire/settings.ts';

const READERS = 'everyone on the way can read';

/** Warnings about secrets that are sent to Kafka, the token endpoint and the registry without TLS. */
export function kafkaPlaintextWarnings(
  { sasl, tls }: Pick<KafkaSettings, 'sasl' | 'tls'>,
  registry: RegistrySettings | undefined,
): string[] {
  const warnings: string[] = [];
  if (sasl !== undefined && !tls) {
    warnings.push(`KAFKA_SASL_MECHANISM is ${sasl.mechanism} without KAFKA_TLS=1: ${exposedBy(sasl.mechanism)}`);
  }
  if (sasl !== undefined && 'oauth' in sasl && isPlain(sasl.oauth.tokenUrl)) {
    warnings.push(
      `KAFKA_OAUTH_TOKEN_URL does not start with https://: ${READERS} KAFKA_OAUTH_CLIENT_SECRET and the tokens`,
    );
  }
  if (registry?.auth !== undefined && isPlain(registry.url)) {
    warnings.push(`SCHEMA_REGISTRY_URL does not start with https://: ${READERS} SCHEMA_REGISTRY_PASSWORD`);
  }
  return warnings;
}

/** Warnings about secrets that are sent to etcd, or by callers to the HTTP API, without TLS. */
export function workerPlaintextWarnings({
  etcd,
  api,
}: {
  readonly etcd: { readonly endpoints: readonly string[]; readonly auth?: unknown };
  readonly api?: { readonly host: string; readonly tokens?: unknown; readonly tls?: unknown } | undefined;
}): string[] {
  const warnings: string[] = [];
  if (etcd.auth !== undefined && etcd.endpoints.some(isPlain)) {
    warnings.push(`ETCD_ENDPOINTS do not all start with https://: ${READERS} ETCD_PASSWORD`);
  }
  if (api?.tokens !== undefined && api.tls === undefined && !isLoopback(api.host)) {
    warnings.push(
      `the HTTP API listens on ${api.host} without TLS: ${READERS} the tokens of API_TOKEN; set API_TLS_CERT_FILE and API_TLS_KEY_FILE, or API_HOST=127.0.0.1 behind a proxy that ends TLS`,
    );
  }
  return warnings;
}

/** What can be read of a login. SCRAM sends no password, but what a dictionary of passwords can be tried against. */
function exposedBy(mechanism: string): string {
  if (mechanism === 'plain') return 'the password is sent unencrypted';
  if (mechanism === 'oauthbearer') return 'the token is sent unencrypted';
  return 'who reads the login can try out passwords against it, and nothing after it is encrypted';
}

/** Whether a URL leads to another machine without TLS. */
function isPlain(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === 'http:' && !isLoopback(hostname.replace(/^\[|\]$/g, ''));
}

/** Whether a host is this machine; of names, only localhost is. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}
