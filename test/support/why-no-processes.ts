import { etcdTools } from '../../ops/bare/etcd.ts';
import { kafkaTools } from '../../ops/bare/kafka.ts';
import { requireTools, which } from '../../ops/bare/toolchain.ts';
import { cacheDir } from '../../ops/dev/paths.ts';

const { env } = process;
const TOOLS = {
  kafka: () => requireTools(kafkaTools(cacheDir(env), env), env),
  etcd: () => requireTools(etcdTools(cacheDir(env), env), env),
  maven: () => requireTools(['java', 'mvn'], env),
  openssl: () => {
    if (which('openssl', env) === undefined) throw new Error('openssl is missing');
  },
} as const;

/** Why these servers can't run as child processes here; undefined if they can. */
export function whyNoProcesses(...names: readonly (keyof typeof TOOLS)[]): string | undefined {
  const faults = names.flatMap((name) => {
    try {
      TOOLS[name]();
      return [];
    } catch (error) {
      return [error instanceof Error ? error.message : String(error)];
    }
  });
  return faults.length === 0 ? undefined : faults.join('; ');
}
