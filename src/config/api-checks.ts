import { createPrivateKey, X509Certificate } from 'node:crypto';
import type { RegistrySettings } from '../adapters/registry/schema-registry.ts';
import { isLoopback } from '../core/host-port.ts';
import type { Secret } from '../core/secret.ts';
import { describeError } from '../errors.ts';
import type { KafkaSettings } from '../kafka/wire/settings.ts';
import type { ConfigErrors } from './parse.ts';
import type { WorkerValues } from './variables.ts';

/** The HTTP API; port 0: any free port. */
export interface ApiConfig {
  readonly host: string;
  readonly port: number;
  readonly maxConnections: number;
  readonly requestTimeoutMs: number;
  readonly keepAliveMs: number;
  /** One name:token per line, with the token's rights; without it, no token is required. */
  readonly tokens?: Secret | undefined;
  readonly tls?: { readonly cert: Secret; readonly key: Secret; readonly clientCa: Secret | undefined } | undefined;
  /** Keys of the keyed forms; without them, requests for those forms are rejected. */
  readonly formKeys?: Secret | undefined;
  /** IDs per second for each caller. */
  readonly rateLimit?: number | undefined;
}

export function apiConfigOf(values: WorkerValues, errors: ConfigErrors): ApiConfig | undefined {
  const { API_HOST: host, API_PORT: port, API_TOKEN: tokens, API_RATE_LIMIT: rateLimit, FORM_KEY: formKeys } = values;
  const tls = tlsOf(values, errors);
  if (port === 'off') return undefined;
  return {
    host,
    port,
    maxConnections: values.API_MAX_CONNECTIONS,
    requestTimeoutMs: values.API_REQUEST_TIMEOUT_MS,
    keepAliveMs: values.API_KEEP_ALIVE_MS,
    tokens,
    tls,
    formKeys,
    rateLimit,
  };
}

function tlsOf(values: WorkerValues, errors: ConfigErrors): ApiConfig['tls'] {
  const { API_TLS_CERT: cert, API_TLS_KEY: key, API_TLS_CLIENT_CA: clientCa } = values;
  const names = ['API_TLS_CERT', 'API_TLS_KEY', 'API_TLS_CLIENT_CA'].flatMap((name) => [name, `${name}_FILE`]);
  errors.ifValid(names, () => {
    errors.requireBothOrNeither({ API_TLS_CERT: cert, API_TLS_KEY: key });
    if (clientCa !== undefined && cert === undefined) {
      errors.add('API_TLS_CERT', 'is required when API_TLS_CLIENT_CA is set');
    }
    checkPem('API_TLS_CERT', () => cert && new X509Certificate(cert()), errors);
    checkPem('API_TLS_CLIENT_CA', () => clientCa && new X509Certificate(clientCa()), errors);
    checkPem('API_TLS_KEY', () => key && createPrivateKey(key()), errors);
  });
  errors.ifValid(names, () => {
    if (cert === undefined || key === undefined) return;
    const fits = new X509Certificate(cert()).checkPrivateKey(createPrivateKey(key()));
    if (!fits) errors.add('API_TLS_KEY', 'does not match API_TLS_CERT');
  });
  if (cert === undefined || key === undefined) return undefined;
  return { cert, key, clientCa };
}

function checkPem(name: string, read: () => unknown, errors: ConfigErrors): void {
  try {
    read();
  } catch (error) {
    errors.add(name, `is invalid: ${describeError(error)}`);
  }
}

/** A warning when other machines can reach the API and it has no authentication, which is probably a mistake. */
export function apiWarnings(api: ApiConfig | undefined): readonly string[] {
  if (api === undefined || api.tokens !== undefined || api.tls?.clientCa !== undefined) return [];
  if (isLoopback(api.host)) return [];
  return [
    `the HTTP API listens on ${api.host} without authentication: set API_TOKEN_FILE or API_TLS_CLIENT_CA_FILE, or API_HOST=127.0.0.1`,
  ];
}

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
