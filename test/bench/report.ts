import { mkdtempSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir, totalmem } from 'node:os';
import { join, resolve } from 'node:path';
import {
  type CapacityData,
  DATA_FILE,
  type Disturbed,
  MOST_OTHERS_PERCENT,
  readData,
} from '../../ops/capacity/data.ts';
import { contradictionsOf } from '../../ops/capacity/odd.ts';
import { writeCapacity } from '../../ops/capacity/write.ts';
import { readManifest } from '../../ops/release/packages.ts';
import { optionsOf, refuse } from './options.ts';
import { watchOthers } from './others.ts';
import { doors, inProcess } from './report/doors.ts';
import { forms, index } from './report/parts.ts';
import { ReportServers } from './report/servers.ts';
import { type Effort, latency, rates, serving } from './report/serving.ts';

/**
 * Measures what docs/operations/capacity.md shows, each part for a short time, keeps the figures as JSON, and writes
 * the page's tables and plots from them.
 */
const values = optionsOf(
  'bench:report',
  [
    'Measures what the page on capacity shows, and writes its figures, tables and plots: about 25 minutes on two quiet cores.',
    `Parts while others take more than ${MOST_OTHERS_PERCENT} % of the machine are marked on the page; then it exits with 1.`,
    "Figures that can't be, such as more IDs than the layout has, are kept aside unless noise explains them: it exits with 1.",
    'Redis and PostgreSQL are measured if they are installed (apt-get install redis-server postgresql).',
  ],
  { scale: 1, rounds: 5, out: '', only: '', redraw: false },
  {
    scale: 'how much each part does; 0.05 tries the program in a few minutes',
    rounds: 'of what is served as fast as possible; the median counts',
    out: 'only the figures, to another file',
    only: 'rates or doors: measure only this, in some minutes, and keep the other figures',
    redraw: 'measure nothing: write tables and plots again from the kept figures',
  },
);
const begunMs = performance.now();
const say = (line: string) => process.stderr.write(`${line}\n`);
const effort: Effort = { scale: values.scale, rounds: values.rounds, say };

/** What others took of the machine, in percent, by part; NaN where the system does not report it. */
const others = new Map<string, number>();

/** Runs a part, and says how long it took, and what others took meanwhile. */
async function part<T>(name: string, work: () => Promise<T>): Promise<T> {
  const [partMs, othersPercent] = [performance.now(), watchOthers()];
  const result = await work();
  others.set(name, othersPercent());
  const seconds = Math.round((performance.now() - partMs) / 1_000);
  say(`${name}: ${seconds} s, others took ${others.get(name)?.toFixed(1)} % of the machine`);
  return result;
}

/** A part on servers that nothing else has used: thousands of topics of other parts would change its figures. */
function servedPart<T>(name: string, work: (report: ReportServers) => Promise<T>): Promise<T> {
  return part(name, async () => {
    await using report = await ReportServers.start(say);
    return await work(report);
  });
}

const atRates = () => servedPart('requests at low rates', (report) => rates(report, effort));
const otherWays = () => servedPart('other ways to unique numbers', (report) => doors(report, effort));

/** What can be measured again by itself, by the names that --only takes. */
const AGAIN: Readonly<Record<string, () => Promise<Partial<CapacityData>>>> = {
  rates: async () => ({ rates: await atRates() }),
  doors: async () => {
    const { servers: _, ...figures } = await otherWays();
    return figures;
  },
};

/** The kept figures, but for this part. */
async function measuredAgain(measure: () => Promise<Partial<CapacityData>>): Promise<CapacityData> {
  const [kept, again] = [readData(), await measure()];
  const before = kept.disturbed?.filter((one) => !others.has(one.part)) ?? [];
  return { ...kept, ...again, disturbed: [...before, ...(disturbed().disturbed ?? [])] };
}

function disturbed(): { readonly disturbed?: readonly Disturbed[] } {
  const all = [...others].map(([name, othersPercent]) => ({ part: name, othersPercent: Math.round(othersPercent) }));
  if (all.some(({ othersPercent }) => Number.isNaN(othersPercent))) return {};
  return { disturbed: all.filter(({ part: name }) => (others.get(name) ?? 0) > MOST_OTHERS_PERCENT) };
}

async function measured(): Promise<CapacityData> {
  const parts = { forms: await part('forms', () => forms(effort)), index: await part('index', () => index(effort)) };
  const latencies = await servedPart('latency', (report) => latency(report, effort));
  const costs = await atRates();
  const served = await servedPart('requests as fast as possible', (report) => serving(report, effort));
  const ways = await otherWays();
  const memory = await servedPart('IDs from memory', (report) => inProcess(report, effort));
  return {
    date: new Date().toISOString().slice(0, 10),
    version: readManifest().version,
    machine: {
      processor: cpus()[0]?.model.trim() ?? 'unknown',
      cores: cpus().length,
      memoryGib: Math.round(totalmem() / 2 ** 30),
      node: process.version,
      servers: ['one Kafka broker', 'three members of etcd', ...ways.servers],
    },
    ...disturbed(),
    ...served,
    latency: latencies,
    rates: costs,
    ...parts,
    doors: ways.doors,
    crashes: ways.crashes,
    inProcess: memory,
  };
}

const again = AGAIN[values.only];
if (values.only !== '' && again === undefined) refuse(`--only takes one of ${Object.keys(AGAIN).join()}`);
if (!values.redraw) {
  const file = values.out === '' ? DATA_FILE : resolve(values.out);
  const data = again === undefined ? await measured() : await measuredAgain(again);
  const wrong = contradictionsOf(data);
  if (wrong.length > 0 && values.out === '') {
    const aside = join(mkdtempSync(join(tmpdir(), 'idalloc-report-')), 'refused.json');
    writeFileSync(aside, `${JSON.stringify(data, undefined, 1)}\n`);
    say(`figures that can't be, kept in ${aside}; measure again on a quiet machine:\n${wrong.join('\n')}`);
    process.exit(1);
  }
  writeFileSync(file, `${JSON.stringify(data, undefined, 1)}\n`);
  say(`${file}, after ${Math.round((performance.now() - begunMs) / 60_000)} min`);
}
if (values.out === '') await writeCapacity();
if (others.values().some((percent) => percent > MOST_OTHERS_PERCENT)) process.exitCode = 1;
