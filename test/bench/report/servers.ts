import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePorts } from '../../../ops/dev/ports.ts';
import { CertificateAuthority } from '../../support/certificates.ts';
import { type ProcessServers, startProcessServers } from '../../support/process-servers.ts';
import { SUITE } from '../../support/servers.ts';
import { Stage } from '../stage.ts';

/** The servers of a report: those of every benchmark, and the broker also listens with TLS. */
export class ReportServers implements AsyncDisposable {
  readonly servers: ProcessServers;
  readonly stage: Stage;
  /** What a worker needs to connect with TLS. */
  readonly tlsEnv: Readonly<Record<string, string>>;
  readonly #dir: string;

  private constructor(dir: string, servers: ProcessServers, tlsEnv: Readonly<Record<string, string>>) {
    this.#dir = dir;
    this.servers = servers;
    this.stage = new Stage(servers);
    this.tlsEnv = tlsEnv;
  }

  static async start(say: (line: string) => void): Promise<ReportServers> {
    const dir = mkdtempSync(join(tmpdir(), 'idalloc-report-'));
    try {
      const authority = new CertificateAuthority(dir);
      const { bothFile } = authority.issue('server');
      const ports = await freePorts(4);
      const [client, broker, controller, tls] = ports.map((port) => `127.0.0.1:${port}`);
      const properties = {
        listeners: `CLIENT://${client},BROKER://${broker},CONTROLLER://${controller},TLS://${tls}`,
        'advertised.listeners': `CLIENT://${client},BROKER://${broker},TLS://${tls}`,
        'listener.security.protocol.map': 'CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL',
        'listener.name.tls.ssl.keystore.type': 'PEM',
        'listener.name.tls.ssl.keystore.location': bothFile,
      };
      const servers = await startProcessServers(say, SUITE, { ports, properties, isMeasured: true });
      const { certFile } = authority.own;
      return new ReportServers(dir, servers, { KAFKA_BROKERS: tls ?? '', KAFKA_TLS: '1', KAFKA_CA_FILE: certFile });
    } catch (error) {
      rmSync(dir, { recursive: true, force: true });
      throw error;
    }
  }

  /** The bytes of a topic's records on the broker's disk. */
  bytesOf(topic: string): number {
    const { kafkaData } = this.servers;
    const partitions = readdirSync(kafkaData).filter((name) => name.slice(0, name.lastIndexOf('-')) === topic);
    const files = partitions.flatMap((name) => readdirSync(join(kafkaData, name)).map((file) => join(name, file)));
    return files
      .filter((file) => file.endsWith('.log'))
      .reduce((sum, file) => sum + statSync(join(kafkaData, file)).size, 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stage[Symbol.asyncDispose]();
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
