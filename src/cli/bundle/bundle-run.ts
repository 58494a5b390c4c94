import { closeSync, fstatSync, openSync, readSync, writeFileSync } from 'node:fs';
import { arch, availableParallelism, freemem, platform, release, totalmem } from 'node:os';
import { basename } from 'node:path';
import { describeError, IdallocError } from '../../errors.ts';
import type { CliContext } from '../context.ts';
import { runDoctor } from '../doctor/doctor-run.ts';
import { listLeases } from '../leases-run.ts';
import type { JsonFlag } from '../options.ts';
import { counted, jsonLine, present, timeText } from '../output.ts';
import { askAll, type WorkerAnswer, type WorkerChoice, type WorkerPlace, workersToAsk } from '../status/ask.ts';
import { rowOf } from '../status/status-run.ts';
import { runCheck } from '../topics/topics-run.ts';
import { type ArchivedFile, tarGz } from './archive.ts';
import { redactor, variablesView } from './secrets.ts';

export interface BundleFlags extends WorkerChoice, JsonFlag {
  readonly output?: string;
  readonly log?: readonly string[];
}

/** A part of the bundle; one that could not be had is the reason, under the same name. */
interface Part {
  readonly name: string;
  readonly text: string;
  readonly failed?: true;
}

/** Gathers all parts, and writes them. */
export async function runBundle(context: CliContext, names: readonly string[], flags: BundleFlags): Promise<void> {
  const { env, now } = context;
  // Before anything is gathered: without the secrets nothing could be searched for them.
  const redact = attempt('a secret could not be read, so it could not be kept out', () => redactor(env));
  const stamp = timeText(now()).replace(/[-:]|\.\d+/g, '');
  const file = flags.output ?? `idalloc-bundle-${stamp}.tar.gz`;
  const parts = [
    { name: 'versions.json', text: jsonLine(versions(context)) },
    { name: 'variables.json', text: jsonLine(variablesView(env)) },
    ...(await workerParts(context, names, flags)),
    ...(await commandParts(context)),
    ...(flags.log ?? []).map((path, i) => logPart(path, i)),
  ];
  const failed = parts.filter((part: Part) => part.failed).map(({ name }) => name);
  const entries = [{ name: 'README.txt', text: readme(stamp, parts) }, ...parts].map(
    ({ name, text }): ArchivedFile => ({ path: `idalloc-bundle-${stamp}/${name}`, text: redact(text) }),
  );
  const archive = tarGz(entries, now());
  attempt(`${file} could not be written`, () => writeFileSync(file, archive, { flag: 'wx', mode: 0o600 }));
  const view = { file, bytes: archive.length, parts: parts.map(({ name }) => name), failed };
  present(context, flags.json, view, () => {
    const lacking = failed.map(
      (name) => `lacks ${name.replace(/\.error\.txt$/, '')}: the file in its place says why\n`,
    );
    const what = `${file}: ${counted(parts.length, 'part')}, ${archive.length} bytes\n`;
    return `${lacking.join('')}${what}It has names of hosts and topics: look before you send it.\n`;
  });
}

function versions({ version, now }: CliContext) {
  return {
    idalloc: version,
    runtime: navigator.userAgent,
    written_at: timeText(now()),
    os: `${platform()} ${release()} ${arch()}`,
    cpus: availableParallelism(),
    memory_bytes: totalmem(),
    memory_free_bytes: freemem(),
  };
}

const PATHS = { 'status.json': '/status', 'readyz.json': '/readyz', 'metrics.txt': '/metrics' } as const;

/** The view of all workers, then what each of them answers. */
async function workerParts(
  context: CliContext,
  names: readonly string[],
  choice: WorkerChoice,
): Promise<readonly Part[]> {
  let places: readonly WorkerPlace[];
  try {
    places = await workersToAsk(context, names, choice);
  } catch (error) {
    return [failure('workers.json', error)];
  }
  const asked: [string, readonly WorkerAnswer[]][] = [];
  for (const [name, path] of Object.entries(PATHS)) asked.push([name, await askAll(context, places, path)]);
  const statuses = asked.find(([name]) => name === 'status.json')?.[1] ?? [];
  const workers = places.map(({ address }, i) => rowOf(address, statuses[i] ?? { fault: 'it was not asked' }));
  const each = places.flatMap(({ address }, i) =>
    asked.map(([name, answers]): Part => {
      const path = `workers/${i}-${fileName(address)}/${name}`;
      const answer = answers[i] ?? { fault: 'it was not asked' };
      return 'fault' in answer ? failure(path, answer.fault) : { name: path, text: answer.body };
    }),
  );
  return [{ name: 'workers.json', text: jsonLine({ workers }) }, ...each];
}

/** What other commands print. They run one after another, so that a busy cluster is asked by one at a time. */
async function commandParts(context: CliContext): Promise<readonly Part[]> {
  const commands: Readonly<Record<string, (quiet: CliContext) => Promise<void>>> = {
    'doctor.json': (quiet) => runDoctor(quiet, { json: true }),
    'topics.json': (quiet) => runCheck(quiet, { json: true }),
    'leases.json': (quiet) => listLeases(quiet, { all: true, json: true }),
  };
  const parts: Part[] = [];
  for (const [name, run] of Object.entries(commands)) {
    let text = '';
    const keep = (more: string) => {
      text += more;
    };
    try {
      await run({ ...context, out: keep, err: () => undefined, setExitCode: () => undefined });
      parts.push({ name, text });
    } catch (error) {
      parts.push(failure(name, error));
    }
  }
  return parts;
}

const LOG_BYTES = 2 * 2 ** 20;

/** The last lines of a log file. */
function logPart(path: string, index: number): Part {
  const name = `logs/${index}-${fileName(basename(path))}`;
  try {
    const file = openSync(path, 'r');
    try {
      const { size } = fstatSync(file);
      const from = Math.max(0, size - LOG_BYTES);
      const bytes = Buffer.alloc(size - from);
      const read = readSync(file, bytes, 0, bytes.length, from);
      const text = bytes.subarray(0, read).toString();
      // A line that was cut could hide half of a secret.
      return { name, text: from === 0 ? text : text.slice(text.indexOf('\n') + 1) };
    } finally {
      closeSync(file);
    }
  } catch (error) {
    return failure(name, error);
  }
}

/** @throws IdallocError STOPPING: a command that was stopped writes nothing. */
function failure(name: string, error: unknown): Part {
  if (error instanceof IdallocError && error.code === 'STOPPING') throw error;
  const why = typeof error === 'string' ? error : describeError(error);
  return { name: `${name}.error.txt`, text: `${why}\n`, failed: true };
}

/** A name or an address as a name of a file. */
function fileName(text: string): string {
  return text.replace(/[^A-Za-z0-9._-]+/g, '_').slice(-48);
}

function attempt<T>(what: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw new IdallocError('CONFIG_INVALID', `${what}: ${describeError(error)}`, { cause: error });
  }
}

function readme(stamp: string, parts: readonly Part[]): string {
  return `A bundle of idalloc, written at ${stamp} by 'idalloc bundle'.
Configured secrets are replaced. Names of hosts, topics and users, and correlation IDs in logs, are not.
A file that ends in .error.txt says why its part could not be had.

${parts.map(({ name }) => name).join('\n')}
`;
}
