import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A certificate and its key as PEM, and their files. */
export interface Certificate {
  readonly certFile: string;
  readonly keyFile: string;
  readonly certPem: string;
  /** Both in one file, as Kafka requires. */
  readonly bothFile: string;
}

const DAYS = 2;
const DAY_MS = 86_400_000;

/** A certificate authority for tests, created with openssl and valid for two days. */
export class CertificateAuthority {
  readonly #dir: string;
  readonly own: Certificate;

  constructor(dir: string) {
    this.#dir = dir;
    this.own = this.#make('authority', [], DAYS);
  }

  /** A certificate for a server on the loopback address, or for a client. */
  issue(name: string, days = DAYS): Certificate {
    const { certFile, keyFile } = this.own;
    return this.#make(name, ['-CA', certFile, '-CAkey', keyFile, '-addext', 'subjectAltName=IP:127.0.0.1'], days);
  }

  /** Like `issue`, but already expired. */
  issueExpired(name: string): Certificate {
    return this.#issueOver(name, '20260101000000Z', '20260102000000Z');
  }

  /** Like `issue`, but nine of its ten days are over. */
  issueOld(name: string): Certificate {
    const inDays = (days: number) => new Date(Date.now() + days * DAY_MS).toISOString().replace(/[-:T]|\.\d+/g, '');
    return this.#issueOver(name, inDays(-9), inDays(1));
  }

  #issueOver(name: string, start: string, end: string): Certificate {
    const issued = this.issue(`${name}-over`);
    const [request, database, config] = ['csr', 'db', 'cnf'].map((end) => join(this.#dir, `${name}.${end}`)) as [
      string,
      string,
      string,
    ];
    const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'pipe' });
    openssl('req', '-new', '-key', issued.keyFile, '-subj', `/CN=${name}`, '-out', request);
    writeFileSync(database, '');
    const lines = [
      '[any]',
      `database=${database}`,
      `new_certs_dir=${this.#dir}`,
      'rand_serial=yes',
      'default_md=sha256',
    ];
    writeFileSync(config, [...lines, 'policy=names', '[names]', 'commonName=supplied'].join('\n'));
    const { certFile, keyFile } = this.own;
    const by = ['-config', config, '-name', 'any', '-cert', certFile, '-keyfile', keyFile, '-batch', '-notext'];
    const over = ['-startdate', start, '-enddate', end];
    openssl('ca', ...by, ...over, '-in', request, '-out', issued.certFile);
    return { ...issued, certPem: readFileSync(issued.certFile, 'utf8') };
  }

  #make(name: string, more: readonly string[], days: number): Certificate {
    const [certFile, keyFile, bothFile] = ['crt', 'key', 'pem'].map((end) => join(this.#dir, `${name}.${end}`)) as [
      string,
      string,
      string,
    ];
    const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
    const out = ['-days', String(days), '-subj', `/CN=${name}`, '-keyout', keyFile, '-out', certFile];
    execFileSync('openssl', ['req', '-x509', ...curve, ...out, ...more], { stdio: 'pipe' });
    writeFileSync(bothFile, readFileSync(keyFile, 'utf8') + readFileSync(certFile, 'utf8'));
    return { certFile, keyFile, bothFile, certPem: readFileSync(certFile, 'utf8') };
  }
}
