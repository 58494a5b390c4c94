import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type BuildOptions, cached, cacheName } from './cache.ts';
import { run } from './run.ts';
import type { ToolName } from './toolchain.ts';

const POM = join(import.meta.dirname, 'kafka/pom.xml');
const DOWNLOAD_TIMEOUT_MS = 10 * 60_000;

/** The directory where the jars are, or will be. KAFKA_HOME, if set, names an unpacked distribution to use instead. */
function plan(cache: string, env: NodeJS.ProcessEnv) {
  if (env.KAFKA_HOME) {
    const libs = join(env.KAFKA_HOME, 'libs');
    if (!existsSync(libs))
      throw new Error(`KAFKA_HOME is set, but ${libs} does not exist; correct the variable or unset it`);
    return { libs, ready: true } as const;
  }
  const version = /<kafka\.version>([^<]+)</.exec(readFileSync(POM, 'utf8'))?.[1];
  if (!version) throw new Error(`no <kafka.version> in ${POM}`);
  const name = cacheName('kafka', version, [POM]);
  return { libs: join(cache, name), ready: existsSync(join(cache, name)), name, version } as const;
}

/** The tools that Kafka needs on this machine; fewer once it is in the cache. */
export function kafkaTools(cache: string, env: NodeJS.ProcessEnv): ToolName[] {
  return plan(cache, env).ready ? ['java'] : ['java', 'mvn'];
}

/** Where Kafka comes from, for people. */
export function kafkaOrigin(cache: string, env: NodeJS.ProcessEnv): string {
  const { libs, ready, version } = plan(cache, env);
  return ready ? `Kafka from ${libs}` : `Kafka ${version} downloaded by Maven`;
}

/** The directory of Kafka's jars, which Maven downloads if the cache lacks them. */
export async function installKafka(env: NodeJS.ProcessEnv, options: Omit<BuildOptions, 'what'>): Promise<string> {
  const { libs, name, version } = plan(options.cache, env);
  if (name === undefined) return libs;
  return cached(name, { ...options, what: `Kafka ${version} (jars by Maven)` }, async (into) => {
    await run({
      command: 'mvn',
      args: [
        ...['-q', '-B', '-Dstyle.color=never', '-f', POM, 'dependency:copy-dependencies'],
        ...['-DincludeScope=runtime', `-DoutputDirectory=${into}`],
      ],
      purpose: "the download of Kafka's jars by Maven",
      timeoutMs: DOWNLOAD_TIMEOUT_MS,
      env,
      signal: options.signal,
    });
  });
}
