import { chooseTestServers, type TestServersChoice } from './server-choice.ts';
import { stopSignal } from './stop-signal.ts';
import { add, NONE, type StepResult, summaryOf, type Tally, tallyLine } from './tally.ts';
import { type Project, runAllExamples, runChain, runVitest, selects, timed } from './test-steps.ts';

const USAGE = `npm test [-- FILTER...]
npm run test:full

npm test runs the short suite: all checks and unit tests, some seeds and mutants of the simulator, and on real servers what only
they show. npm run test:full runs the long suite, which is everything else. With a filter (as vitest takes it, such as part of
a file name), only the selected tests are run, from both suites.

The servers are containers where an engine answers or, on Debian as root, can be installed and started
(IDALLOC_NO_INSTALL=1 prevents that), else child processes. With CI set, the lack of an engine is a failure. The last line of
standard output is "N passed, N failed, N skipped".
`;

function title(text: string): void {
  process.stdout.write(`\n=== ${text}\n`);
}

function log(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** Rejects at the stop. Steps that still run are ended by their guard when this process exits. */
function unlessStopped<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const stopped = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  return Promise.race([work, stopped]);
}

/** The projects of tests on real servers; `few` runs two files at a time, and `alone` one. */
const ON_SERVERS = ['short', 'long', 'few', 'alone'] as const satisfies readonly Project[];

/** One run of a suite, or of selected tests. */
class Run {
  readonly results: StepResult[] = [];
  readonly #signal: AbortSignal;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  get tally(): Tally {
    return this.results.reduce((sum, { tally }) => add(sum, tally), NONE);
  }

  async short(): Promise<void> {
    const options = { signal: this.#signal, title };
    // A cold machine builds images meanwhile.
    const servers = this.#prepared();
    await this.#step('checks', () => runChain('check', options));
    title('unit tests');
    await this.#step('unit tests', () => runVitest('unit', [], {}, this.#signal));
    await Promise.all([
      this.#step('simulator', () => runChain('simulate:short', { ...options, background: true })),
      this.#onServers(servers, (run) => run('short')),
    ]);
  }

  async long(): Promise<void> {
    const options = { signal: this.#signal, title, background: true };
    await this.#onServers(this.#prepared(), async (run) => {
      // What computes comes second: beside it, this many tests on servers would wait for processors, some of them in
      // vain.
      await run('long');
      await Promise.all([
        this.#step('simulator', () => runChain('simulate', options)),
        this.#step('all examples', () => runAllExamples(options)),
        run('few').then(() => run('alone')),
      ]);
    });
  }

  async selected(filter: readonly string[]): Promise<void> {
    const has = (project: Project) => selects(project, filter, this.#signal);
    if (await has('unit')) await this.#step('unit tests', () => runVitest('unit', filter, {}, this.#signal));
    const chosen: Project[] = [];
    for (const project of ON_SERVERS) if (await has(project)) chosen.push(project);
    if (chosen.length === 0) return;
    await this.#onServers(this.#prepared(), async (run) => {
      for (const project of chosen) await run(project, filter);
    });
  }

  /** Installs and builds what the servers need. A failure is reported by the step that waits for them. */
  #prepared(): Promise<TestServersChoice> {
    const choice = chooseTestServers(process.env, log);
    choice.catch(() => undefined);
    return choice;
  }

  async #step(name: string, work: () => Promise<Tally>): Promise<void> {
    this.results.push(await timed(name, work));
  }

  /** Passes a function that runs a project of tests on the servers, which are prepared first. */
  async #onServers(
    choice: Promise<TestServersChoice>,
    work: (run: (project: Project, filter?: readonly string[]) => Promise<void>) => Promise<void>,
  ): Promise<void> {
    title('servers for the integration tests');
    const servers = await unlessStopped(choice, this.#signal);
    try {
      if (servers.kind === 'processes') await this.#step('containers', () => withoutContainers());
      await work(async (project, filter = []) => {
        title(`integration tests on ${servers.kind}: ${project}`);
        const env = { IDALLOC_TEST_SERVERS: servers.kind };
        await this.#step(`servers, ${project}`, () => runVitest(project, filter, env, this.#signal));
      });
    } finally {
      await servers.stopEngine();
    }
  }
}

/** In CI the lack of containers is a failure, since it would hide what they show. */
async function withoutContainers(): Promise<Tally> {
  log('Tests of images and of docker-compose.yml are skipped.');
  if (!process.env.CI) return NONE;
  log('CI is set, so the lack of containers is a failure.');
  return { ...NONE, failed: 1 };
}

async function main(args: readonly string[]): Promise<number> {
  if (args.includes('--help') || args.includes('-h')) {
    process.stdout.write(USAGE);
    return 0;
  }
  const signal = stopSignal(() => log('stopping'));
  const run = new Run(signal);
  const filter = args.filter((arg) => arg !== '--full');
  try {
    if (filter.length > 0) await run.selected(filter);
    else if (args.includes('--full')) await run.long();
    else await run.short();
    const { tally } = run;
    if (tally.passed + tally.failed + tally.skipped === 0) throw new Error(`no test matches ${args.join(' ')}`);
    process.stdout.write(`\n${summaryOf(run.results)}\n\n${tallyLine(tally)}\n`);
    return tally.failed === 0 ? 0 : 1;
  } catch (error) {
    log(`idalloc: ${error instanceof Error ? error.message : error}`);
    return signal.aborted ? 130 : 1;
  }
}

process.exit(await main(process.argv.slice(2)));
