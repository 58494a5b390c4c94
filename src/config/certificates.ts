import { X509Certificate } from 'node:crypto';
import { memoize } from '../core/memoize.ts';
import type { Secret } from '../core/secret.ts';
import type { Config } from './config.ts';

/** When a certificate in use expires. */
export interface CertificateExpiry {
  /** The variable that holds it, without _FILE. */
  readonly variable: string;
  readonly expiresAtMs: number;
  /** The time from its first to its last moment. */
  readonly lifeMs: number;
}

/** Variables are read at most once a second, and seldom change. */
const MAX_REMEMBERED = 20;
const PEM = /-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----[^-]+-----END \1-----/g;

/**
 * When our certificates and the CAs that we trust expire, as the files are now. A chain expires with its first
 * certificate to expire. A CA file expires with its last: during a rotation it holds two, of which the old one may
 * expire. A text without a readable certificate is left out.
 */
export function certificateExpiries({ kafka, etcd, api }: Pick<Config, 'kafka' | 'etcd' | 'api'>): CertificateExpiry[] {
  const oauthCa = kafka.sasl !== undefined && 'oauth' in kafka.sasl ? kafka.sasl.oauth.ca : undefined;
  return [
    ...expiryOf('KAFKA_CERT', kafka.clientCertificate?.cert, 'first'),
    ...expiryOf('KAFKA_CA', kafka.ca, 'last'),
    ...expiryOf('KAFKA_OAUTH_CA', oauthCa, 'last'),
    ...expiryOf('ETCD_CERT', etcd.tls?.clientCertificate?.cert, 'first'),
    ...expiryOf('ETCD_CA', etcd.tls?.ca, 'last'),
    ...expiryOf('API_TLS_CERT', api?.tls?.cert, 'first'),
    ...expiryOf('API_TLS_CLIENT_CA', api?.tls?.clientCa, 'last'),
  ];
}

function expiryOf(variable: string, pem: Secret | undefined, which: 'first' | 'last'): CertificateExpiry[] {
  const lives = pem === undefined ? [] : livesIn(pem());
  const rising = lives.toSorted((one, other) => one.expiresAtMs - other.expiresAtMs);
  const life = which === 'first' ? rising[0] : rising.at(-1);
  return life === undefined ? [] : [{ variable, ...life }];
}

type Life = Pick<CertificateExpiry, 'expiresAtMs' | 'lifeMs'>;

const livesIn = memoize((text) => [...text.matchAll(PEM)].flatMap(([pem]) => lifeOf(pem)), MAX_REMEMBERED);

function lifeOf(pem: string): Life[] {
  try {
    const { validFrom, validTo } = new X509Certificate(pem);
    const expiresAtMs = Date.parse(validTo);
    return [{ expiresAtMs, lifeMs: expiresAtMs - Date.parse(validFrom) }];
  } catch {
    return []; // reported where it is used
  }
}
