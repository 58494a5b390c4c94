import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { cached } from '../../ops/bare/cache.ts';
import { type Child, startChild, untilReady } from '../../ops/dev/child.ts';
import { cacheDir } from '../../ops/dev/paths.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { run } from '../../ops/dev/run.ts';

const VERSION = '3.0.9';
const ARTIFACT = `io.apicurio:apicurio-registry-app:${VERSION}:tar.gz:all`;
const DOWNLOAD_TIMEOUT_MS = 5 * 60_000;
const READY_TIMEOUT_MS = 300_000;

export interface RegistryProcess extends Child {
  /** The URL of Confluent's API. */
  readonly url: string;
}

/** Apicurio, a real schema registry with Confluent's API. Its schemas are in memory, and lost when it stops. */
export async function startRegistry(directory: string): Promise<RegistryProcess> {
  const log = (line: string) => process.stderr.write(`${line}\n`);
  const what = `Apicurio ${VERSION} (by Maven)`;
  const home = await cached(`apicurio-${VERSION}`, { cache: cacheDir(process.env), what, log }, async (into) => {
    const timeoutMs = DOWNLOAD_TIMEOUT_MS;
    const copy = ['-q', '-B', 'dependency:copy', `-Dartifact=${ARTIFACT}`, `-DoutputDirectory=${into}`];
    await run({ command: 'mvn', args: copy, cwd: into, purpose: `the download of ${what}`, timeoutMs });
    const [archive = ''] = readdirSync(into);
    await run({ command: 'tar', args: ['-xzf', archive], cwd: into, purpose: `unpacking ${what}`, timeoutMs });
  });
  const [port] = await freePorts(1);
  const jar = join(home, `apicurio-registry-app-${VERSION}-runner.jar`);
  const child = await startChild({
    name: 'the schema registry',
    logFile: join(directory, 'registry.log'),
    command: 'java',
    args: [`-Dquarkus.http.port=${port}`, '-Dquarkus.http.host=127.0.0.1', '-jar', jar],
  });
  const url = `http://127.0.0.1:${port}/apis/ccompat/v7`;
  const answers = async () => (await fetch(`${url}/subjects`).catch(() => undefined))?.ok === true;
  await untilReady(child, answers, { timeoutMs: READY_TIMEOUT_MS });
  return { ...child, url };
}
