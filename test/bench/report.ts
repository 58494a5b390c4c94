import { writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { resolve } from 'node:path';
import { type CapacityData, DATA_FILE } from '../../ops/capacity/data.ts';
import { writeCapacity } from '../../ops/capacity/write.ts';
import { readManifest } from '../../ops/release/packages.ts';
import { optionsOf } from './options.ts';
import { doors, inProcess } from './report/doors.ts';
import { forms, index } from './report/parts.ts';
import { ReportServers } from './report/servers.ts';
import { type Effort, latency, serving } from './report/serving.ts';

/**
 * Measures what docs/operations/capacity.md shows, each part for a short time, keeps the figures as JSON, and writes
 * the page's tables and plots from them.
 */
const values = optionsOf(
  'bench:report',
  [
    'Measures what the page on capacity shows, and writes its figures, tables and plots: about 15 minutes on two quiet cores.',
    'Redis and PostgreSQL are measured if they are installed (apt-get install redis-server postgresql).',
  ],
  { scale: 1, rounds: 3, out: '', redraw: false },
  {
    scale: 'how much each part does; 0.05 tries the program in a few minutes',
    rounds: 'of what is served as fast as possible; the median counts',
    out: 'only the figures, to another file',
    redraw: 'measure nothing: write tables and plots again from the kept figures',
  },
);
const begunMs = performance.now();
const say = (line: string) => process.stderr.write(`${line}\n`);
const effort: Effort = { scale: values.scale, rounds: values.rounds, say };

/** Runs a part, and says how long it took. */
async function part<T>(name: string, work: () => Promise<T>): Promise<T> {
  const partMs = performance.now();
  const result = await work();
  say(`${name}: ${Math.round((performance.now() - partMs) / 1_000)} s`);
  return result;
}

async function measured(): Promise<CapacityData> {
  const parts = { forms: await part('forms', () => forms(effort)), index: await part('index', () => index(effort)) };
  await using report = await ReportServers.start(say);
  const served = await part('requests as fast as possible', () => serving(report, effort));
  const latencies = await part('latency', () => latency(report, effort));
  const others = await part('other ways to unique numbers', () => doors(report, effort));
  const memory = await part('IDs from memory', () => inProcess(report, effort));
  return {
    date: new Date().toISOString().slice(0, 10),
    version: readManifest().version,
    machine: {
      processor: cpus()[0]?.model.trim() ?? 'unknown',
      cores: cpus().length,
      memoryGib: Math.round(totalmem() / 2 ** 30),
      node: process.version,
      servers: ['one Kafka broker', 'three members of etcd', ...others.servers],
    },
    ...served,
    latency: latencies,
    ...parts,
    doors: others.doors,
    crashes: others.crashes,
    inProcess: memory,
  };
}

if (!values.redraw) {
  const file = values.out === '' ? DATA_FILE : resolve(values.out);
  writeFileSync(file, `${JSON.stringify(await measured(), undefined, 1)}\n`);
  say(`${file}, after ${Math.round((performance.now() - begunMs) / 60_000)} min`);
}
if (values.out === '') await writeCapacity();
