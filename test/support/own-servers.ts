import { afterAll } from 'vitest';
import { type ServerParts, type SuiteServers, suiteServers, type TestServers } from './servers.ts';

/**
 * Starts servers for one test file, of the same kind as the suite's, so that the file may break them while others run.
 * Call it at the top of the file; they stop after its last test, and with its process at the latest. What is not asked
 * for is the suite's, and must not be broken.
 */
export async function ownServers(parts: Partial<ServerParts>): Promise<SuiteServers> {
  const suite = suiteServers();
  const { kafka = false, etcdMembers = 0 } = parts;
  const own = await start(suite, { kafka, etcdMembers });
  afterAll(() => own.stop());
  const shared = (what: string) => async (): Promise<never> => {
    throw new Error(`${what} is the suite's: ask for one of this file's own`);
  };
  const [broker, member] = [shared('Kafka'), shared('etcd')];
  return {
    ...own,
    ...(kafka ? {} : { brokers: suite.brokers, killKafka: broker, restartKafka: broker }),
    ...(etcdMembers > 0
      ? {}
      : {
          etcdEndpoints: suite.etcdEndpoints,
          pauseEtcd: member,
          resumeEtcd: member,
          killEtcd: member,
          restartEtcd: member,
        }),
  };
}

async function start({ kind }: SuiteServers, parts: ServerParts): Promise<TestServers> {
  if (kind === 'containers') {
    const { startContainerServers } = await import('./container-servers.ts');
    return startContainerServers(parts);
  }
  const { startProcessServers } = await import('./process-servers.ts');
  return startProcessServers(() => undefined, parts);
}
