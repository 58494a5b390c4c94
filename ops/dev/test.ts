import { ensureEngine } from './docker-engine.ts';
import { ensureImages } from './images.ts';
import { stopSignal } from './stop-signal.ts';
import { add, NONE, type Tally, tallyLine } from './tally.ts';
import { type Project, runChain, runVitest, selects } from './test-steps.ts';

const USAGE = `npm test [-- FILTER...]

Runs all checks, the unit tests, the simulator, and the integration tests on real servers: as containers where an engine answers or,
on Debian as root, can be installed and started (IDALLOC_NO_INSTALL=1 prevents that), else as child processes. With CI
set, the lack of an engine is a failure. The last line of standard output is "N passed, N failed, N skipped".

With a filter (as vitest takes it, such as part of a file name), only the selected tests are run.
`;

interface ServerChoice {
  readonly kind: 'containers' | 'processes';
  /** Why there are no containers. */
  readonly reason?: string;
  stop(): Promise<void>;
}

function title(text: string): void {
  process.stdout.write(`\n=== ${text}\n`);
}

function log(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** Containers if an engine and the images are available, else processes with the reason. */
async function chooseServers(): Promise<ServerChoice> {
  const wish = process.env.IDALLOC_TEST_SERVERS;
  const nothing = async () => undefined;
  if (wish === 'processes') return { kind: wish, reason: 'IDALLOC_TEST_SERVERS=processes', stop: nothing };
  const engine = await ensureEngine(log);
  if ('unavailable' in engine) return { kind: 'processes', reason: engine.unavailable, stop: nothing };
  try {
    await ensureImages(['kafka', 'etcd'], log);
    return { kind: 'containers', stop: () => engine.stop() };
  } catch (error) {
    await engine.stop();
    const reason = `the images are not available: ${error instanceof Error ? error.message : error}`;
    return { kind: 'processes', reason, stop: nothing };
  }
}

/** Rejects at the stop. Steps that still run are ended by their guard when this process exits. */
function unlessStopped<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const stopped = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  return Promise.race([work, stopped]);
}

/** The tests that run side by side, then those that break the servers, or measure, and so run alone. */
const ON_SERVERS = ['integration', 'alone'] as const satisfies readonly Project[];

async function integration(
  projects: readonly Project[],
  filter: readonly string[],
  signal: AbortSignal,
): Promise<Tally> {
  title('servers for the integration tests');
  const servers = await unlessStopped(chooseServers(), signal);
  try {
    let tally = NONE;
    if (servers.reason !== undefined) {
      log(`No container engine: ${servers.reason}`);
      log('The servers run as child processes; tests of images and of docker-compose.yml are skipped.');
      if (process.env.CI) {
        log('CI is set, so the lack of containers is a failure.');
        tally = { ...NONE, failed: 1 };
      }
    }
    for (const project of projects) {
      title(`integration tests on ${servers.kind}${project === 'alone' ? ', one at a time' : ''}`);
      tally = add(tally, await runVitest(project, filter, { IDALLOC_TEST_SERVERS: servers.kind }, signal));
    }
    return tally;
  } finally {
    await servers.stop();
  }
}

async function everything(signal: AbortSignal): Promise<Tally> {
  const checks = await runChain('check', signal, title);
  title('unit tests');
  const unit = await runVitest('unit', [], {}, signal);
  const simulated = await runChain('simulate', signal, title);
  return [unit, simulated, await integration(ON_SERVERS, [], signal)].reduce(add, checks);
}

async function selected(filter: readonly string[], signal: AbortSignal): Promise<Tally> {
  const has = async (project: Project) => selects(project, filter, signal);
  let tally = NONE;
  if (await has('unit')) tally = add(tally, await runVitest('unit', filter, {}, signal));
  const chosen: Project[] = [];
  for (const project of ON_SERVERS) if (await has(project)) chosen.push(project);
  if (chosen.length > 0) tally = add(tally, await integration(chosen, filter, signal));
  return tally;
}

async function main(args: readonly string[]): Promise<number> {
  if (args.includes('--help') || args.includes('-h')) {
    process.stdout.write(USAGE);
    return 0;
  }
  const signal = stopSignal(() => log('stopping'));
  try {
    const tally = await (args.length > 0 ? selected(args, signal) : everything(signal));
    if (tally.passed + tally.failed + tally.skipped === 0) throw new Error(`no test matches ${args.join(' ')}`);
    process.stdout.write(`\n${tallyLine(tally)}\n`);
    return tally.failed === 0 ? 0 : 1;
  } catch (error) {
    log(`idalloc: ${error instanceof Error ? error.message : error}`);
    return signal.aborted ? 130 : 1;
  }
}

process.exit(await main(process.argv.slice(2)));
