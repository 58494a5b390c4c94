import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempDisposableSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { fill, rateOf } from './backlog.ts';
import { optionsOf } from './options.ts';
import { cpuMsOf } from './running.ts';
import { MAIN, median, Stage, type Topics } from './stage.ts';

/**
 * What `idalloc audit` costs for a history that a real worker has made, as a ratio to a process that only reads the
 * same topics: most of an audit's time is its own work, and both need the brokers in the same way.
 */
const values = optionsOf(
  'bench:audit',
  ['Measures what an audit of a real history costs, as a ratio to reading its topics alone; and its memory and disk.'],
  { requests: 1_000_000, partitions: 8, rounds: 3, 'ids-per-request': 10, 'temp-dir': tmpdir() },
);
const { requests, partitions } = values;
const say = (line: string) => process.stderr.write(`${line}\n`);
const READ_ALONE = fileURLToPath(new URL('read-alone.ts', import.meta.url));
const LOOK_MS = 50;
const MIB = 1_048_576;

await using stage = await Stage.open(say);

/** What a process used until its end. */
interface Used {
  readonly seconds: number;
  readonly cpu_s: number;
  readonly memory_mib: number;
  readonly disk_mib: number;
  readonly stdout: string;
}

/** Runs a program to its end, and looks at it meanwhile. */
async function used(args: readonly string[], env: Topics['env'], directory: string): Promise<Used> {
  const begunMs = performance.now();
  const stdio = ['ignore', 'pipe', 'inherit'] as const;
  const child = spawn(process.execPath, [...args], { env: { ...process.env, ...env }, stdio: [...stdio] });
  let stdout = '';
  child.stdout?.on('data', (text) => {
    stdout += text;
  });
  const exit = once(child, 'close'); // its output has been read then, which 'exit' does not say
  let [cpuMs, memory, disk] = [0, 0, 0];
  while (child.exitCode === null && child.signalCode === null) {
    cpuMs = Math.max(cpuMs, cpuMsOf(child.pid) || 0);
    memory = Math.max(memory, peakMemory(child));
    disk = Math.max(disk, bytesIn(directory) + bytesUnlinked(child, directory));
    await pause(LOOK_MS);
  }
  const [code] = await exit;
  if (code !== 0) throw new Error(`${args.join(' ')} failed with ${code}: ${stdout}`);
  const seconds = (performance.now() - begunMs) / 1_000;
  const mib = (bytes: number) => Math.round(bytes / MIB);
  return { seconds, cpu_s: cpuMs / 1_000, memory_mib: mib(memory), disk_mib: mib(disk), stdout };
}

/** In bytes; 0 if the system does not report it. */
function peakMemory({ pid }: ChildProcess): number {
  try {
    const [, kib = 0] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1')) ?? [];
    return Number(kib) * 1_024;
  } catch {
    return 0;
  }
}

/** The size of the files in a directory and below; those that disappear meanwhile don't count. */
function bytesIn(directory: string): number {
  let bytes = 0;
  for (const entry of readdirSync(directory, { withFileTypes: true, recursive: true })) {
    bytes += entry.isFile() ? (statSync(join(entry.parentPath, entry.name), { throwIfNoEntry: false })?.size ?? 0) : 0;
  }
  return bytes;
}

/**
 * The size of the files of a directory that a process still has, though their names are gone: those in which SQLite
 * sorts.
 */
function bytesUnlinked({ pid }: ChildProcess, directory: string): number {
  let bytes = 0;
  try {
    for (const fd of readdirSync(`/proc/${pid}/fd`)) {
      const path = `/proc/${pid}/fd/${fd}`;
      const name = readlinkSync(path);
      if (name.startsWith(directory) && name.endsWith(' (deleted)')) bytes += statSync(path).size;
    }
  } catch {
    // The process has ended meanwhile, or the system has no such directory.
  }
  return bytes;
}

const topics = await stage.topics(partitions);
await fill(stage, topics, requests, values['ids-per-request']);
{
  await using worker = stage.start('worker', topics);
  const { requests_per_s } = await rateOf(stage, topics, worker, requests);
  say(`a worker has served ${requests} requests, ${requests_per_s} in a second`);
}
const all = [topics.requests, topics.ledger, topics.replies, topics.env.DEAD_LETTER_TOPIC ?? ''];
using temporary = mkdtempDisposableSync(join(values['temp-dir'], 'idalloc-bench-'));
const directory = temporary.path;
const rounds: { readonly alone: Used; readonly audit: Used }[] = [];
for (let round = 1; round <= values.rounds; round += 1) {
  const alone = await used([READ_ALONE, stage.brokers.join(','), ...all], topics.env, directory);
  const audit = await used([MAIN, 'audit', '--json', '--temp-dir', directory], topics.env, directory);
  say(`round ${round}: read alone in ${alone.seconds.toFixed(1)} s, audited in ${audit.seconds.toFixed(1)} s`);
  rounds.push({ alone, audit });
}
const medianOf = (of: (round: (typeof rounds)[number]) => number) => Number(median(rounds.map(of)).toFixed(2));
const figures = {
  requests,
  partitions,
  audit_s: medianOf(({ audit }) => audit.seconds),
  read_s: medianOf(({ alone }) => alone.seconds),
  time_ratio: medianOf(({ alone, audit }) => audit.seconds / alone.seconds),
  cpu_ratio: medianOf(({ alone, audit }) => audit.cpu_s / alone.cpu_s),
  memory_mib: medianOf(({ audit }) => audit.memory_mib),
  disk_mib: medianOf(({ audit }) => audit.disk_mib),
};
const { finding_counts } = JSON.parse(rounds[0]?.audit.stdout ?? '{}') as { readonly finding_counts?: object };
if (Object.keys(finding_counts ?? {}).length > 0) throw new Error(`it found ${JSON.stringify(finding_counts)}`);
process.stdout.write(
  values.json
    ? `${JSON.stringify(figures)}\n`
    : `an audit of ${requests} requests takes ${figures.audit_s} s, ${figures.time_ratio} times as long as reading alone, ` +
        `with ${figures.cpu_ratio} times its processor time; ${figures.memory_mib} MiB of memory, ${figures.disk_mib} MiB of disk\n`,
);
