import { etcdTools } from '../bare/etcd.ts';
import { kafkaTools } from '../bare/kafka.ts';
import { aptObstacle, ensureTools, type Log, toolFaults } from '../bare/toolchain.ts';
import { type Engine, ensureEngine } from './docker-engine.ts';
import { ensureImages } from './images.ts';
import { cacheDir } from './paths.ts';

/** What is known of this machine when Kafka and etcd have to come from somewhere. */
export interface Facts {
  /** The value of a variable that asks for one kind, and its name. */
  readonly wish?: { readonly kind: string; readonly by: string } | undefined;
  /** Why containers can't be used: no engine, or no images. Undefined if they can. */
  readonly noContainers: string | undefined;
  /** Tools that child processes need and that are missing or too old. */
  readonly missing: readonly string[];
  /** Why nothing can be installed here; undefined if it can. */
  readonly noInstall: string | undefined;
}

/** The kind of servers, and why; with `install`, the missing tools have to be installed first. */
export interface Choice {
  readonly kind: 'containers' | 'processes';
  readonly install: boolean;
  readonly because: string;
}

const KINDS: readonly string[] = ['containers', 'processes'];

/**
 * Chooses in this order: containers, the tools on the PATH, tools that can be installed. Throws an error with cause and
 * remedy if there is none of them, or if a variable asks for what is not there.
 */
export function choose({ wish, noContainers, missing, noInstall }: Facts): Choice {
  if (wish !== undefined && !KINDS.includes(wish.kind)) {
    throw new Error(`${wish.by} is '${wish.kind}'; set it to ${KINDS.join(' or ')}, or unset it`);
  }
  if (wish?.kind !== 'processes' && noContainers === undefined) {
    return { kind: 'containers', install: false, because: 'a container engine answers and has the images' };
  }
  if (wish?.kind === 'containers') throw new Error(`${wish.by}=containers, but ${noContainers}`);
  const because = wish === undefined ? String(noContainers) : `${wish.by} asks for them`;
  if (missing.length === 0) return { kind: 'processes', install: false, because };
  if (noInstall === undefined) return { kind: 'processes', install: true, because };
  throw new Error(
    [
      'no Kafka and etcd can be had here:',
      `containers: ${wish === undefined ? noContainers : `${wish.by} excludes them`}`,
      ...missing.map((fault) => `child processes: ${fault}`),
      `nothing is installed, because ${noInstall}`,
      'Start a container engine that can pull the images, install the tools, or set KAFKA_BROKERS and ETCD_ENDPOINTS.',
    ].join('\n  '),
  );
}

/** What the integration tests run their servers on. */
export interface TestServersChoice extends Choice {
  /** Ends the engine if this process started it. */
  stopEngine(): Promise<void>;
}

/**
 * Chooses what the integration tests run their servers on, with everything installed that it needs: by
 * IDALLOC_TEST_SERVERS, else containers if an engine answers or can be installed, else child processes. Rejects if
 * neither can be had.
 */
export async function chooseTestServers(env: NodeJS.ProcessEnv, log: Log): Promise<TestServersChoice> {
  const kind = env.IDALLOC_TEST_SERVERS;
  const wish = kind ? { kind, by: 'IDALLOC_TEST_SERVERS' } : undefined;
  const engine: Engine = kind === 'processes' ? { unavailable: '' } : await ensureEngine(log);
  const stopEngine = async () => {
    if ('stop' in engine) await engine.stop();
  };
  try {
    const noContainers = 'unavailable' in engine ? engine.unavailable : await whyNoImages(log);
    const cache = cacheDir(env);
    const needed = [...kafkaTools(cache, env), ...etcdTools(cache, env)];
    const missing = toolFaults(needed, env).map(({ text }) => text);
    const choice = choose({ wish, noContainers, missing, noInstall: aptObstacle(env) });
    // Some tests start their own servers as child processes, whatever the servers of the suite are.
    await ensureTools([...needed, 'java', 'mvn'], { env, log }).catch((error: Error) => {
      if (choice.install) throw error;
      log(`tests that need a missing tool are skipped: ${error.message}`);
    });
    if (choice.kind === 'processes') await stopEngine();
    log(`${choice.kind === 'processes' ? 'child processes' : 'containers'}, because ${choice.because}`);
    return { ...choice, stopEngine };
  } catch (error) {
    await stopEngine();
    throw error;
  }
}

async function whyNoImages(log: Log): Promise<string | undefined> {
  try {
    await ensureImages(['kafka', 'etcd'], log);
    return undefined;
  } catch (error) {
    return `the images are not available: ${error instanceof Error ? error.message : error}`;
  }
}
