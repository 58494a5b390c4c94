import { spawnSync } from 'node:child_process';
import { constants } from 'node:os';
import type { TestProject } from 'vitest/node';
import { type Engine, ensureEngine } from '../../ops/dev/docker-engine.ts';
import { ensureImages, ensureReaper } from '../../ops/dev/images.ts';
import { serveControl, type TestServers } from './servers.ts';

const CHOICES = ['containers', 'processes'];

function log(line: string): void {
  process.stderr.write(`test servers: ${line}\n`);
}

/** The engine to use, or why none: by IDALLOC_TEST_SERVERS, else containers if an engine is available. */
async function chooseEngine(): Promise<Engine> {
  const choice = process.env.IDALLOC_TEST_SERVERS;
  if (choice !== undefined && !CHOICES.includes(choice)) {
    throw new Error(`IDALLOC_TEST_SERVERS is '${choice}'; set it to ${CHOICES.join(' or ')}, or unset it`);
  }
  if (choice === 'processes') return { unavailable: 'IDALLOC_TEST_SERVERS=processes' };
  const engine = await ensureEngine(log);
  if (choice === 'containers' && 'unavailable' in engine) {
    throw new Error(`IDALLOC_TEST_SERVERS=containers, but ${engine.unavailable}`);
  }
  return engine;
}

/**
 * Removes the session's containers when the process exits without the teardown. A signal must become an exit here: a library
 * of testcontainers would otherwise kill the process by that signal, without its exit handlers.
 */
function sweepAtExit(label: string): () => void {
  const sweep = () => {
    const docker = (...args: string[]) => spawnSync('docker', args, { encoding: 'utf8', timeout: 20_000 }).stdout ?? '';
    const ids = docker('ps', '--all', '--quiet', '--filter', `label=${label}`).split('\n').filter(Boolean);
    if (ids.length > 0) docker('rm', '--force', '--volumes', ...ids);
    docker('network', 'prune', '--force', '--filter', `label=${label}`);
  };
  const interrupted = () => process.exit(128 + constants.signals.SIGINT);
  const terminated = () => process.exit(128 + constants.signals.SIGTERM);
  process.once('exit', sweep).once('SIGINT', interrupted).once('SIGTERM', terminated);
  return () => process.off('exit', sweep).off('SIGINT', interrupted).off('SIGTERM', terminated);
}

async function startContainers(): Promise<TestServers> {
  await ensureImages(['kafka', 'etcd'], log);
  // testcontainers reads this before its first container.
  if (!(await ensureReaper())) process.env.TESTCONTAINERS_RYUK_DISABLED = 'true';
  const { removeOrphans, sessionLabel, startContainerServers } = await import('./container-servers.ts');
  await removeOrphans(log);
  const forget = sweepAtExit(await sessionLabel());
  const servers = await startContainerServers();
  const stop = async (): Promise<void> => {
    await servers.stop();
    await removeOrphans(log); // of test files that had servers of their own and were killed
    forget();
  };
  return { ...servers, stop };
}

async function startProcesses(): Promise<TestServers> {
  const { startProcessServers } = await import('./process-servers.ts');
  return startProcessServers(log);
}

/** Vitest's global set-up of the integration project: one Kafka and one etcd cluster for the whole run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const engine = await chooseEngine();
  const noEngine = 'unavailable' in engine ? engine.unavailable : undefined;
  const stopEngine = async (): Promise<void> => {
    if ('stop' in engine) await engine.stop();
  };
  if (noEngine !== undefined) log(`child processes: ${noEngine}`);
  const begin = performance.now();
  try {
    const servers = await (noEngine === undefined ? startContainers() : startProcesses());
    const control = await serveControl(servers);
    const seconds = ((performance.now() - begin) / 1000).toFixed(1);
    log(`Kafka ${servers.brokers.join()} and etcd ${servers.etcdEndpoints.join()} as ${servers.kind} in ${seconds} s`);
    project.provide('servers', {
      kind: servers.kind,
      brokers: servers.brokers,
      etcdEndpoints: servers.etcdEndpoints,
      controlUrl: control.url,
      ...(noEngine === undefined ? {} : { noEngine }),
    });
    return async () => {
      await control.close();
      await servers.stop();
      await stopEngine();
      log('stopped');
    };
  } catch (error) {
    await stopEngine();
    throw error;
  }
}
