import { aptObstacle, type Log } from './apt.ts';
import { type Engine, ensureEngine } from './docker-engine.ts';
import { etcdTools } from './etcd-install.ts';
import { ensureImages } from './images.ts';
import { kafkaTools } from './kafka-install.ts';
import { cacheDir } from './paths.ts';
import { type Choice, choose } from './server-choice.ts';
import { toolFaults } from './toolchain.ts';
import { ensureTools } from './tools-install.ts';

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
