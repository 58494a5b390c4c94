import { X509Certificate } from 'node:crypto';
import { memoize } from '../core/memoize.ts';
import type { Secret } from '../core/secret.ts';
import type { Config } from './config.ts';

/** When a certificate in use expires. */
export interface CertificateExpiry {
  /** The variable that holds it, without _FILE. */
  readonly variable: string;
  readonly expiresAtMs: number;
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
    ...expiryOf('KAFKA_CERT', kafka.clientCertificate?.cert, Math.min),
    ...expiryOf('KAFKA_CA', kafka.ca, Math.max),
    ...expiryOf('KAFKA_OAUTH_CA', oauthCa, Math.max),
    ...expiryOf('ETCD_CERT', etcd.tls?.clientCertificate?.cert, Math.min),
    ...expiryOf('ETCD_CA', etcd.tls?.ca, Math.max),
    ...expiryOf('API_TLS_CERT', api?.tls?.cert, Math.min),
    ...expiryOf('API_TLS_CLIENT_CA', api?.tls?.clientCa, Math.max),
  ];
}

function expiryOf(variable: string, pem: Secret | undefined, which: typeof Math.min): CertificateExpiry[] {
  const ends = pem === undefined ? [] : endsOf(pem());
  return ends.length === 0 ? [] : [{ variable, expiresAtMs: which(...ends) }];
}

const endsOf = memoize((text) => [...text.matchAll(PEM)].flatMap(([pem]) => endOf(pem)), MAX_REMEMBERED);

function endOf(pem: string): number[] {
  try {
    return [Date.parse(new X509Certificate(pem).validTo)];
  } catch {
    return []; // reported where it is used
  }
}
