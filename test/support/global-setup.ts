import { spawnSync } from 'node:child_process';
import { constants } from 'node:os';
import type { TestProject } from 'vitest/node';
import { ensureReaper } from '../../ops/dev/images.ts';
import { chooseTestServers } from '../../ops/dev/server-choice.ts';
import { serveControl, type TestServers } from './servers.ts';

function log(line: string): void {
  process.stderr.write(`test servers: ${line}\n`);
}

/**
 * Removes the session's containers when the process exits without the teardown. A signal must become an exit here: a
 * library of testcontainers would otherwise kill the process by that signal, without its exit handlers.
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
  const { kind, because, stopEngine } = await chooseTestServers(process.env, log);
  const begin = performance.now();
  try {
    const servers = await (kind === 'containers' ? startContainers() : startProcesses());
    const control = await serveControl(servers);
    const seconds = ((performance.now() - begin) / 1000).toFixed(1);
    log(`Kafka ${servers.brokers.join()} and etcd ${servers.etcdEndpoints.join()} as ${servers.kind} in ${seconds} s`);
    project.provide('servers', {
      kind: servers.kind,
      brokers: servers.brokers,
      etcdEndpoints: servers.etcdEndpoints,
      controlUrl: control.url,
      ...(kind === 'containers' ? {} : { noEngine: because }),
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
