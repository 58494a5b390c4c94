import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ROOT } from '../../ops/dev/paths.ts';
import { run } from '../../ops/dev/run.ts';
import { fill, rateOf } from './backlog.ts';
import { Load, percentilesOf } from './load.ts';
import type { Stage } from './stage.ts';
import type { Tree } from './trees.ts';

/** The benches that compare trees. */
export const BENCHES = ['throughput', 'latency', 'idle', 'index'] as const;
export type Bench = (typeof BENCHES)[number];

/** Figures of one tree in one round, by name; the name of a figure starts with its bench. */
export type Figures = Readonly<Record<string, number>>;

/** Figures of which less is better. Of the others more is. */
export const isCost = (name: string): boolean => /(cpu_us|_ms|_percent|bytes_per_entry)$/.test(name);

export interface Settings {
  readonly partitions: number;
  /** Requests that wait when a worker starts, for the throughput. */
  readonly requests: number;
  /** Requests per second at which latency is measured, one after the other. */
  readonly rates: readonly number[];
  /** How long each rate is kept, and each look at the idle workers. */
  readonly seconds: number;
  /** How long workers are idle before they count as idle. */
  readonly settleSeconds: number;
  /** Entries of the index. */
  readonly entries: number;
}

const START_TIMEOUT_MS = 60_000;
const WARM_UP_SECONDS = 2;
const INDEX_TIMEOUT_MS = 600_000;
const IDS = 1;
/** The benchmark of the index of 0.3.0 needs whole parts. */
const PART = 500;

/** Throughput and latency of a worker that has just started, on topics of its own. */
export async function serve(
  stage: Stage,
  tree: Tree,
  benches: readonly Bench[],
  { partitions, requests, rates, seconds }: Settings,
): Promise<Figures> {
  const topics = await stage.topics(partitions, tree.main);
  const hasBacklog = benches.includes('throughput');
  if (hasBacklog) await fill(stage, topics, requests, IDS);
  await using running = stage.start('worker', topics, {}, tree.main);
  const figures: Record<string, number> = {};
  if (hasBacklog) {
    const { requests_per_s, cpu_us } = await rateOf(stage, topics, running, requests);
    Object.assign(figures, { 'throughput requests_per_s': requests_per_s, 'throughput cpu_us': cpu_us });
  }
  if (!benches.includes('latency')) return figures;
  await using load = new Load(stage, topics, running, IDS);
  await load.firstReply(START_TIMEOUT_MS);
  const warm = Math.min(...rates);
  await load.atRate('warm', WARM_UP_SECONDS * warm, warm);
  for (const rate of rates) {
    const { p50_ms, p99_ms } = percentilesOf(await load.atRate(`rate${rate}`, Math.ceil(seconds * rate), rate));
    Object.assign(figures, { [`latency at ${rate}/s p50_ms`]: p50_ms, [`latency at ${rate}/s p99_ms`]: p99_ms });
  }
  return figures;
}

/**
 * The shares of a core that idle workers use, which run at the same time, so that every look at them is a pair.
 *
 * @returns for each look the figures of the trees, in their order
 */
export async function idle(
  stage: Stage,
  trees: readonly Tree[],
  looks: number,
  { partitions, seconds, settleSeconds }: Settings,
): Promise<readonly (readonly Figures[])[]> {
  await using stack = new AsyncDisposableStack();
  const workers = await Promise.all(
    trees.map(async ({ main }) => {
      const topics = await stage.topics(partitions, main);
      const running = stack.use(stage.start('worker', topics, {}, main));
      await using load = new Load(stage, topics, running, IDS);
      await load.firstReply(START_TIMEOUT_MS);
      return running;
    }),
  );
  await pause(settleSeconds * 1_000);
  const found: Figures[][] = [];
  for (let look = 0; look < looks; look += 1) {
    const begun = workers.map((worker) => [performance.now(), worker.fineCpuMs()] as const);
    await pause(seconds * 1_000);
    found.push(
      workers.map((worker, i) => {
        const [atMs = 0, cpuMs = 0] = begun[i] ?? [];
        worker.check();
        return { 'idle core_percent': (100 * (worker.fineCpuMs() - cpuMs)) / (performance.now() - atMs) };
      }),
    );
  }
  return found;
}

/** What the tree's own benchmark of the index measures of its sources: the index is no process of its own. */
export async function index(tree: Tree, { entries, partitions }: Settings): Promise<Figures> {
  const whole = partitions * PART;
  const output = await run({
    command: process.execPath,
    args: [
      join(tree.root, 'test/bench/index.ts'),
      '--json',
      ...['--entries', String(whole * Math.ceil(entries / whole))],
      ...['--partitions', String(partitions)],
    ],
    cwd: ROOT,
    purpose: `the benchmark of the index of ${tree.name}`,
    timeoutMs: INDEX_TIMEOUT_MS,
  });
  const found = JSON.parse(output) as Record<string, number>;
  const names = [
    'restore_entries_per_cpu_s',
    'unknown_lookups_per_cpu_s',
    'disk_bytes_per_entry',
    'memory_bytes_per_entry',
  ];
  return Object.fromEntries(names.map((name) => [`index ${name}`, found[name] ?? Number.NaN]));
}
