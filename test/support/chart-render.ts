import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { parseAllDocuments } from 'yaml';
import { installHelm } from '../../ops/bare/kubernetes.ts';
import { CHART, packChart } from '../../ops/helm/chart.ts';

const run = promisify(execFile);

/** The namespace in which the chart is rendered. */
export const NAMESPACE = 'ids';
/** The files of values with which the chart is tried. */
export const VALUES: readonly string[] = readdirSync(join(CHART, 'ci'));
/** A manifest of Kubernetes, as far as tests look at each. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  // biome-ignore lint/suspicious/noExplicitAny: each kind has its own form, which Kubernetes' schema checks
  readonly [field: string]: any;
}

/** The packed chart, rendered by the real helm. */
export class RenderedChart implements Disposable {
  readonly #dir = mkdtempSync(join(tmpdir(), 'idalloc-chart-'));
  readonly #helm: string;
  readonly #chart = join(this.#dir, 'idalloc');
  #archive = '';

  private constructor(helm: string) {
    this.#helm = helm;
  }

  static async pack(): Promise<RenderedChart> {
    const chart = new RenderedChart(await installHelm((line) => process.stderr.write(`chart: ${line}\n`)));
    chart.#archive = await packChart(chart.#dir);
    return chart;
  }

  /** What helm's linter says; rejects if it finds an error or a warning. */
  async lint(values: string): Promise<string> {
    return await this.#run('lint', '--strict', this.#chart, '--values', join(CHART, 'ci', values));
  }

  /** The manifests with a file of values, and `name=value` set besides; rejects with what helm says. */
  async render(values: string, ...set: readonly string[]): Promise<readonly Manifest[]> {
    const text = await this.#run(
      ...['template', 'ids', this.#chart, '--namespace', NAMESPACE, '--values', join(CHART, 'ci', values)],
      ...set.flatMap((one) => ['--set', one]),
    );
    return parseAllDocuments(text)
      .map((document) => document.toJS())
      .filter((manifest) => manifest !== null);
  }

  [Symbol.dispose](): void {
    rmSync(this.#dir, { recursive: true, force: true });
  }

  /**
   * Runs a command of helm that a page shows, in a directory with the packed chart and a file of values; `more`:
   * options besides.
   */
  async command(command: string, values: string, more: readonly string[]): Promise<string> {
    const path = join(this.#dir, 'values.yaml');
    writeFileSync(path, values);
    const words = command.replace('dist/chart/idalloc-*.tgz', this.#archive).replace('values.yaml', path).split(' ');
    return await this.#run(...words.slice(1), ...more);
  }

  async #run(...args: readonly string[]): Promise<string> {
    const env = { PATH: process.env.PATH ?? '', HOME: this.#dir };
    const { stdout } = await run(this.#helm, args, { env, maxBuffer: 1 << 24 });
    return stdout;
  }
}

/** The manifest of a kind; throws unless there is exactly one, of this name if it is given. */
export function only(manifests: readonly Manifest[], kind: string, name?: string): Manifest {
  const found = manifests.filter((one) => one.kind === kind && (name === undefined || one.metadata.name === name));
  if (found.length !== 1 || found[0] === undefined)
    throw new Error(`${found.length} manifests of ${kind} ${name ?? ''}`);
  return found[0];
}
