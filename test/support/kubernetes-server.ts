import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { expect, vi } from 'vitest';
import { installApiServer } from '../../ops/bare/kubernetes.ts';
import { type Child, startChild, untilReady } from '../../ops/dev/child.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { CertificateAuthority } from './certificates.ts';
import type { Manifest } from './chart-render.ts';
import type { Definition } from './kubernetes-schemas.ts';
import { OwnEtcd } from './own-etcd.ts';

const TOKEN = 'a-token-of-the-test';
const READY_MS = 180_000;

interface Answer {
  readonly status: number;
  readonly body: unknown;
}
/** How the API server names a kind in its paths. */
interface Resource {
  readonly kind: string;
  readonly name: string;
  readonly namespaced: boolean;
}

/**
 * A real API server of Kubernetes on an etcd of its own, without nodes and controllers: it checks manifests and runs
 * nothing.
 */
export class KubernetesServer implements AsyncDisposable {
  readonly #stack: AsyncDisposableStack;
  readonly #port: number;
  readonly #caFile: string;

  private constructor(stack: AsyncDisposableStack, port: number, caFile: string) {
    [this.#stack, this.#port, this.#caFile] = [stack, port, caFile];
  }

  static async start(): Promise<KubernetesServer> {
    const program = await installApiServer((line) => process.stderr.write(`chart: ${line}\n`));
    await using starting = new AsyncDisposableStack();
    const dir = starting.adopt(mkdtempSync(join(tmpdir(), 'idalloc-kubernetes-')), (path) =>
      rmSync(path, { recursive: true, force: true }),
    );
    const etcd = starting.use(await OwnEtcd.start());
    const [port = 0] = await freePorts(1);
    const authority = new CertificateAuthority(dir);
    const { certFile, keyFile } = authority.issue('kubernetes');
    writeFileSync(join(dir, 'tokens'), `${TOKEN},admin,1,system:masters\n`);
    const options = {
      'etcd-servers': etcd.endpoints.join(','),
      'bind-address': '127.0.0.1',
      'advertise-address': '127.0.0.1',
      'secure-port': port,
      'endpoint-reconciler-type': 'none',
      'tls-cert-file': certFile,
      'tls-private-key-file': keyFile,
      'token-auth-file': join(dir, 'tokens'),
      'authorization-mode': 'RBAC',
      'service-account-issuer': 'https://localhost',
      'service-account-key-file': certFile,
      'service-account-signing-key-file': keyFile,
      'service-cluster-ip-range': '10.0.0.0/24',
      // No controller creates the accounts that pods have by default.
      'disable-admission-plugins': 'ServiceAccount',
    };
    const child: Child = await startChild({
      name: 'kube-apiserver',
      logFile: join(dir, 'kube-apiserver.log'),
      command: program,
      args: Object.entries(options).map(([name, value]) => `--${name}=${value}`),
    });
    starting.defer(() => child.stop());
    const server = new KubernetesServer(starting.move(), port, authority.own.certFile);
    try {
      const ready = async () =>
        (await server.#call('GET', '/readyz?verbose=false').catch(() => undefined))?.status === 200;
      await untilReady(child, ready, { timeoutMs: READY_MS });
    } catch (error) {
      await server[Symbol.asyncDispose]();
      throw error;
    }
    return server;
  }

  /** The options by which helm reaches the server. */
  get helmOptions(): readonly string[] {
    return [
      `--kube-apiserver=https://127.0.0.1:${this.#port}`,
      `--kube-token=${TOKEN}`,
      `--kube-ca-file=${this.#caFile}`,
    ];
  }

  /** What is stored at a path; undefined if nothing is. */
  async stored(path: string): Promise<unknown> {
    const { status, body } = await this.#call('GET', path);
    return status === 200 ? body : undefined;
  }

  /** Creates a namespace, as an operator does before an installation. */
  async createNamespace(name: string): Promise<void> {
    const body = { apiVersion: 'v1', kind: 'Namespace', metadata: { name } };
    expect(await this.#call('POST', '/api/v1/namespaces', body)).toMatchObject({ status: 201 });
  }

  /** Adds the kinds of an operator, and waits until they are served. */
  async define(definitions: readonly Definition[]): Promise<void> {
    const path = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
    for (const definition of definitions) {
      expect(await this.#call('POST', path, definition), definition.metadata.name).toMatchObject({ status: 201 });
    }
    for (const { spec } of definitions) {
      for (const { name } of spec.versions) {
        const served = async () =>
          (await this.#resources(`${spec.group}/${name}`)).some(({ kind }) => kind === spec.names.kind);
        await vi.waitUntil(served, { timeout: READY_MS });
      }
    }
  }

  /** What the server says of a manifest that it checks in full and does not store; undefined if it would create it. */
  async refusal(manifest: Manifest, namespace: string): Promise<string | undefined> {
    const { apiVersion, kind } = manifest;
    const resource = (await this.#resources(apiVersion)).find((one) => one.kind === kind && !one.name.includes('/'));
    if (resource === undefined) return `${apiVersion} ${kind} is not served`;
    const within = resource.namespaced ? `/namespaces/${manifest.metadata.namespace ?? namespace}` : '';
    const path = `${rootOf(apiVersion)}${within}/${resource.name}?dryRun=All&fieldValidation=Strict`;
    const { status, body } = await this.#call('POST', path, manifest);
    return status === 201 ? undefined : `${kind} ${manifest.metadata.name}: ${JSON.stringify(body)}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }

  async #resources(apiVersion: string): Promise<readonly Resource[]> {
    const { status, body } = await this.#call('GET', rootOf(apiVersion));
    return status === 200 ? (body as { readonly resources: readonly Resource[] }).resources : [];
  }

  #call(method: string, path: string, body?: unknown): Promise<Answer> {
    const ca = readFileSync(this.#caFile);
    return new Promise((resolve, reject) => {
      const headers = {
        authorization: `Bearer ${TOKEN}`,
        'content-type': 'application/json',
        accept: 'application/json',
      };
      const options = { method, path, headers, host: '127.0.0.1', port: this.#port, ca };
      const sent = request(options, (response) => {
        const { statusCode: status = 0 } = response;
        const isJson = response.headers['content-type']?.startsWith('application/json');
        if (isJson) json(response).then((answer) => resolve({ status, body: answer }), reject);
        else response.resume().once('end', () => resolve({ status, body: undefined }));
      });
      sent.once('error', reject);
      sent.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
}

const rootOf = (apiVersion: string) => (apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`);
