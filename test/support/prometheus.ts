import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'vitest';
import { stringify } from 'yaml';
import { type Child, startChild, untilReady } from '../../ops/dev/child.ts';
import { ensurePrograms } from '../../ops/dev/docker-engine.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import type { WorkerProcess } from './worker-process.ts';

const READY_TIMEOUT_MS = 120_000;
/** Workers render their metrics once a second at most. */
const INTERVAL = '1s';

/**
 * Makes sure that Prometheus and promtool are installed. If they are not, and can't be, the test is skipped, or fails
 * if CI is set.
 */
export async function requirePrometheus({ skip }: Pick<TestContext, 'skip'>): Promise<void> {
  const log = (line: string) => process.stderr.write(`prometheus: ${line}\n`);
  const missing = await ensurePrograms({ prometheus: 'prometheus', promtool: 'prometheus' }, log);
  if (missing === undefined) return;
  if (process.env.CI) throw new Error(`CI is set, so the rules must be tested: ${missing}`);
  skip(missing);
}

/** A series of the answer to an instant query. */
export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A real Prometheus that scrapes workers and itself, and evaluates rules once a second. */
export class Prometheus implements AsyncDisposable {
  readonly #dir: string;
  readonly #url: string;
  readonly #child: Child;
  /** The addresses of the workers, by job. */
  readonly #targets = new Map<string, readonly string[]>();

  private constructor(dir: string, url: string, child: Child) {
    this.#dir = dir;
    this.#url = url;
    this.#child = child;
  }

  /** Starts it with the text of a file of rules, and no targets. */
  static async start(rules: string): Promise<Prometheus> {
    const dir = mkdtempSync(join(tmpdir(), 'idalloc-prometheus-'));
    const [port] = await freePorts(1);
    const config = {
      global: { scrape_interval: INTERVAL, evaluation_interval: INTERVAL, scrape_timeout: INTERVAL },
      rule_files: ['rules.yml'],
      scrape_configs: [
        { job_name: 'idalloc', file_sd_configs: [{ files: ['targets.json'] }] },
        { job_name: 'prometheus', static_configs: [{ targets: [`127.0.0.1:${port}`] }] },
      ],
    };
    writeFileSync(join(dir, 'rules.yml'), rules);
    writeFileSync(join(dir, 'prometheus.yml'), stringify(config));
    writeFileSync(join(dir, 'targets.json'), '[]');
    const url = `http://127.0.0.1:${port}`;
    const child = await startChild({
      name: 'Prometheus',
      logFile: join(dir, 'prometheus.log'),
      command: 'prometheus',
      args: [
        `--config.file=${join(dir, 'prometheus.yml')}`,
        `--storage.tsdb.path=${join(dir, 'data')}`,
        `--web.listen-address=127.0.0.1:${port}`,
      ],
    });
    const answers = async () => (await fetch(`${url}/-/ready`).catch(() => undefined))?.ok === true;
    await untilReady(child, answers, { timeoutMs: READY_TIMEOUT_MS });
    return new Prometheus(dir, url, child);
  }

  /** Scrapes these workers, too, as targets of a job. */
  async scrape(job: string, workers: readonly WorkerProcess[]): Promise<void> {
    const served = workers.map((worker) => worker.line(({ msg }) => msg === 'health and metrics are served'));
    const ports = (await Promise.all(served)).map(({ port }) => port);
    this.#targets.set(
      job,
      ports.map((port) => `127.0.0.1:${port}`),
    );
    const groups = [...this.#targets].map(([name, targets]) => ({ targets, labels: { job: name } }));
    writeFileSync(join(this.#dir, 'targets.new'), JSON.stringify(groups));
    // A half-written file would be an error.
    renameSync(join(this.#dir, 'targets.new'), join(this.#dir, 'targets.json'));
  }

  /** The answer to an instant query, now or at a time in Unix seconds. Rejects with Prometheus' reason. */
  async query(expression: string, time?: number): Promise<readonly Sample[]> {
    const body = new URLSearchParams({ query: expression, ...(time === undefined ? {} : { time: String(time) }) });
    const response = await fetch(`${this.#url}/api/v1/query`, { method: 'POST', body });
    const { data, error } = (await response.json()) as {
      readonly data?: { readonly result: readonly { metric: Sample['metric']; value: readonly [number, string] }[] };
      readonly error?: string;
    };
    if (data === undefined) throw new Error(`Prometheus refused ${expression}: ${error}`);
    return data.result.map(({ metric, value: [, value] }) => ({ metric, value: Number(value) }));
  }

  /** How often it has evaluated each rule. */
  async evaluations(): Promise<number> {
    return (await this.query('min(prometheus_rule_group_iterations_total)'))[0]?.value ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#child.stop();
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
