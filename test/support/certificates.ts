import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A certificate and its key as PEM, and the files that they lie in. */
export interface Certificate {
  readonly certFile: string;
  readonly keyFile: string;
  /** Both in one, as Kafka wants them. */
  readonly bothFile: string;
}

/** An authority of two days that only tests believe, made by openssl. */
export class Authority {
  readonly #dir: string;
  readonly own: Certificate;

  constructor(dir: string) {
    this.#dir = dir;
    this.own = this.#make('authority', []);
  }

  /** A certificate for a server on the loopback address, or for a client. */
  issue(name: string): Certificate {
    const { certFile, keyFile } = this.own;
    return this.#make(name, ['-CA', certFile, '-CAkey', keyFile, '-addext', 'subjectAltName=IP:127.0.0.1']);
  }

  #make(name: string, more: readonly string[]): Certificate {
    const [certFile, keyFile, bothFile] = ['crt', 'key', 'pem'].map((end) => join(this.#dir, `${name}.${end}`)) as [
      string,
      string,
      string,
    ];
    const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
    const out = ['-days', '2', '-subj', `/CN=${name}`, '-keyout', keyFile, '-out', certFile];
    execFileSync('openssl', ['req', '-x509', ...curve, ...out, ...more], { stdio: 'pipe' });
    writeFileSync(bothFile, readFileSync(keyFile, 'utf8') + readFileSync(certFile, 'utf8'));
    return { certFile, keyFile, bothFile };
  }
}
