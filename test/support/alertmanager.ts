import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'vitest';
import { stringify } from 'yaml';
import { type Child, startChild, untilReady } from '../../ops/dev/child.ts';
import { ensurePrograms } from '../../ops/dev/docker-engine.ts';
import { freePorts } from '../../ops/dev/ports.ts';

const READY_TIMEOUT_MS = 120_000;
/** Debian's name of the program and of its package. */
const PROGRAM = 'prometheus-alertmanager';
/** How long alerts of a group are collected before the first notification. */
const GROUP_WAIT = '5s';

/** Makes sure that Alertmanager is installed. If it can't be, the test is skipped, or fails if CI is set. */
export async function requireAlertmanager({ skip }: Pick<TestContext, 'skip'>): Promise<void> {
  const log = (line: string) => process.stderr.write(`alertmanager: ${line}\n`);
  const missing = await ensurePrograms({ [PROGRAM]: PROGRAM }, log);
  if (missing === undefined) return;
  if (process.env.CI) throw new Error(`CI is set, so the inhibitions must be tested: ${missing}`);
  skip(missing);
}

type Labels = Readonly<Record<string, string>>;

/** What Alertmanager sends to a receiver. */
export interface Notification {
  readonly groupLabels: Labels;
  readonly alerts: readonly { readonly labels: Labels }[];
}

/** A part of Alertmanager's configuration, without receivers. */
export interface Routing {
  readonly route: { readonly receiver: string };
  readonly inhibit_rules: readonly unknown[];
}

/** A real Alertmanager with a receiver, which collects what it is notified of. */
export class Alertmanager implements AsyncDisposable {
  readonly notifications: Notification[] = [];
  readonly #dir = mkdtempSync(join(tmpdir(), 'idalloc-alertmanager-'));
  readonly #receiver: Server;
  #url = '';
  #child: Child | undefined;

  private constructor() {
    this.#receiver = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        this.notifications.push(JSON.parse(Buffer.concat(chunks).toString()) as Notification);
        response.end();
      });
    });
  }

  /** Starts it with this routing, but with a short wait before the first notification of a group. */
  static async start({ route, ...rest }: Routing): Promise<Alertmanager> {
    const started = new Alertmanager();
    const receiverPort = await new Promise<number>((resolve) => {
      started.#receiver.listen(0, '127.0.0.1', () => resolve((started.#receiver.address() as AddressInfo).port));
    });
    const config = {
      ...rest,
      route: { ...route, group_wait: GROUP_WAIT },
      receivers: [{ name: route.receiver, webhook_configs: [{ url: `http://127.0.0.1:${receiverPort}/` }] }],
    };
    await started.#run(stringify(config));
    return started;
  }

  async #run(config: string): Promise<void> {
    const [port] = await freePorts(1);
    const file = join(this.#dir, 'alertmanager.yml');
    writeFileSync(file, config);
    this.#url = `http://127.0.0.1:${port}`;
    this.#child = await startChild({
      name: 'Alertmanager',
      logFile: join(this.#dir, 'alertmanager.log'),
      command: PROGRAM,
      args: [
        `--config.file=${file}`,
        `--storage.path=${join(this.#dir, 'data')}`,
        `--web.listen-address=127.0.0.1:${port}`,
        '--cluster.listen-address=',
      ],
    });
    const answers = async () => (await fetch(`${this.#url}/-/ready`).catch(() => undefined))?.ok === true;
    await untilReady(this.#child, answers, { timeoutMs: READY_TIMEOUT_MS });
  }

  /** These alerts fire, as Prometheus says. */
  async fire(alerts: readonly Labels[]): Promise<void> {
    const response = await fetch(`${this.#url}/api/v2/alerts`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(alerts.map((labels) => ({ labels }))),
    });
    if (!response.ok) throw new Error(`Alertmanager refused the alerts: ${await response.text()}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#child?.stop();
    this.#receiver.close();
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
