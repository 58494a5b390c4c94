import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Etcd3, Range } from 'etcd3';
import { type EtcdNode, startEtcd } from '../../ops/bare/etcd.ts';
import { type Certificate, CertificateAuthority } from './certificates.ts';

const SIZE = 3;
const ROOT_PASSWORD = 'root-pass';
const ROLE = 'worker';

/** Replaces a secret's file atomically, as a rotation does. */
export function replaceFile(file: string, text: string): void {
  writeFileSync(`${file}.new`, text);
  renameSync(`${file}.new`, file);
}

/** Files of a certificate and its key, which can be replaced. */
export class ShownCertificate {
  readonly cert: string;
  readonly key: string;

  constructor(dir: string, name: string, first: Certificate) {
    [this.cert, this.key] = [join(dir, `${name}.shown.crt`), join(dir, `${name}.shown.key`)];
    this.show(first);
  }

  show({ certFile, keyFile }: Certificate): void {
    replaceFile(this.cert, readFileSync(certFile, 'utf8'));
    replaceFile(this.key, readFileSync(keyFile, 'utf8'));
  }
}

export interface SecuredEtcdOptions {
  /** A key that the user may read and write besides the keys under the prefix. */
  readonly key: string;
  readonly prefix: string;
  readonly user: string;
  readonly password: string;
  /** An unused token expires after this. */
  readonly tokenSeconds: number;
}

/** Three etcd members that require TLS, a client certificate of their CA, and a login; one user with one role. */
export class SecuredEtcd implements AsyncDisposable {
  readonly dir: string;
  /** Signs all certificates at first. */
  readonly authority: CertificateAuthority;
  /** A second authority whose certificates the members accept. */
  readonly nextAuthority: CertificateAuthority;
  /** The certificate of each member; a replaced one applies to new connections. */
  readonly shown: readonly ShownCertificate[];
  readonly endpoints: readonly string[];
  readonly #options: SecuredEtcdOptions;
  readonly #nodes: EtcdNode[];
  #root: Etcd3;

  private constructor(
    options: SecuredEtcdOptions,
    own: Pick<SecuredEtcd, 'dir' | 'authority' | 'nextAuthority' | 'shown'>,
    nodes: readonly EtcdNode[],
  ) {
    this.#options = options;
    this.dir = own.dir;
    this.authority = own.authority;
    this.nextAuthority = own.nextAuthority;
    this.shown = own.shown;
    this.#nodes = [...nodes];
    this.endpoints = nodes.map(({ endpoint }) => endpoint);
    this.#root = this.#connect();
  }

  static async start(options: SecuredEtcdOptions): Promise<SecuredEtcd> {
    const dir = mkdtempSync(join(tmpdir(), 'idalloc-secured-etcd-'));
    const [authority, nextAuthority] = [
      new CertificateAuthority(dir),
      new CertificateAuthority(mkdtempSync(join(dir, 'next-'))),
    ];
    const ca = join(dir, 'accepted.crt');
    writeFileSync(ca, authority.own.certPem + nextAuthority.own.certPem);
    const server = authority.issue('server');
    const shown = Array.from({ length: SIZE }, (_, i) => new ShownCertificate(dir, `member-${i}`, server));
    const { nodes } = await startEtcd({
      dir: join(dir, 'etcd'),
      size: SIZE,
      tls: (member) => ({ ca, ...fileOf(shown, member) }),
      args: ['--auth-token-ttl', String(options.tokenSeconds)],
    });
    const etcd = new SecuredEtcd(options, { dir, authority, nextAuthority, shown }, nodes);
    await etcd.#secure();
    return etcd;
  }

  /** Grants the user the right to the keys under the prefix, in place of the one that it had. */
  async grant(permission: 'Readwrite' | 'Read' = 'Readwrite'): Promise<void> {
    await this.#root.role(ROLE).grant({ permission, range: this.#range() });
  }

  async revoke(): Promise<void> {
    await this.#root.role(ROLE).revoke({ permission: 'Readwrite', range: this.#range() });
  }

  async setPassword(password: string): Promise<void> {
    await this.#root.user(this.#options.user).setPassword(password);
  }

  /** Kills one member, and restarts it when the work is done. */
  async without(member: number, work: () => Promise<void>): Promise<void> {
    const node = this.#nodes[member];
    if (node === undefined) throw new RangeError(`no member ${member}`);
    await node.kill();
    try {
      await work();
    } finally {
      this.#nodes[member] = await node.restart();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#root.close();
    // Members that stop together wait for each other until this limit.
    await Promise.all(this.#nodes.map((node) => node.stop(500)));
    rmSync(this.dir, { recursive: true, force: true });
  }

  async #secure(): Promise<void> {
    const { user, password, key } = this.#options;
    const root = this.#root;
    await root.role('root').create();
    await root.user('root').create(ROOT_PASSWORD);
    await root.user('root').addRole('root');
    await root.role(ROLE).create();
    await this.grant();
    await root.role(ROLE).grant({ permission: 'Readwrite', key });
    await root.user(user).create(password);
    await root.user(user).addRole(ROLE);
    await root.auth.authEnable();
    root.close();
    this.#root = this.#connect({ username: 'root', password: ROOT_PASSWORD });
  }

  #range(): Range {
    return Range.prefix(`${this.#options.prefix}/`);
  }

  #connect(auth?: { username: string; password: string }): Etcd3 {
    const own = this.authority.issue('root');
    const credentials = {
      rootCertificate: Buffer.from(this.authority.own.certPem),
      certChain: readFileSync(own.certFile),
      privateKey: readFileSync(own.keyFile),
    };
    return new Etcd3({ hosts: [...this.endpoints], credentials, ...(auth === undefined ? {} : { auth }) });
  }
}

function fileOf(shown: readonly ShownCertificate[], member: number): { cert: string; key: string } {
  const found = shown[member];
  if (found === undefined) throw new RangeError(`no member ${member}`);
  return { cert: found.cert, key: found.key };
}
