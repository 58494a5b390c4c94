import { table } from '../../src/cli/output.ts';
import { type Compared, compared, type Pair } from './comparison.ts';
import { optionsOf } from './options.ts';
import { boundText, METHOD, MOST_PAIRS } from './spread.ts';
import { Stage } from './stage.ts';
import { BENCHES, type Bench, type Figures, idle, index, type Settings, serve } from './tree-benches.ts';
import { type Tree, thisTree, treeOf } from './trees.ts';

/**
 * Two trees, measured in turn on the same servers by the benchmarks of this tree: which is faster, and whether the
 * figures can tell. The order changes with each round (this, other, other, this …), so that a drift of the machine
 * favours neither.
 */
const values = optionsOf(
  'bench',
  [
    'Compares this tree with a commit: each figure as a ratio with its spread. Above 1 this tree is better.',
    `The spread is a ${METHOD}.`,
  ],
  {
    compare: '',
    bench: BENCHES.join(),
    rounds: 6,
    minutes: Number.POSITIVE_INFINITY,
    'fail-below': 0,
    requests: 100_000,
    partitions: 8,
    rates: [1_000, 10_000],
    seconds: 5,
    settle: 70,
    entries: 500_000,
  },
  {
    compare: 'a commit, tag or branch',
    rounds:
      'each measures both trees; fewer than 4 show little. A first measurement warms the brokers up and does not count',
    minutes: 'begins no further round that would not end in this time; an idle worker is measured last',
    'fail-below': 'exits with 1 if even the upper end of the spread of a ratio is below this',
    requests: 'that wait when a worker starts, for its throughput',
    rates: 'requests/s at which latency is measured, each for --seconds, as is each look at an idle worker',
    settle: 'seconds until a worker counts as idle',
    entries: 'of the index',
  },
);

const begunMs = performance.now();
const benches = benchesOf(values.bench);
const { rounds } = values;
if (!(rounds >= 1 && rounds <= MOST_PAIRS)) throw new RangeError(`--rounds must be from 1 to ${MOST_PAIRS}`);
const failBelow = values['fail-below'];
const settings: Settings = {
  partitions: values.partitions,
  requests: values.requests,
  rates: values.rates,
  seconds: values.seconds,
  settleSeconds: values.settle,
  entries: values.entries,
};
const say = (line: string) => process.stderr.write(`${line}\n`);

function benchesOf(text: string): readonly Bench[] {
  const names = text.split(',');
  const wrong = names.find((name) => !(BENCHES as readonly string[]).includes(name));
  if (wrong !== undefined) throw new RangeError(`--bench has no '${wrong}': it takes some of ${BENCHES.join()}`);
  return names as Bench[];
}

/** Whether brokers are measured as well, which compile their code while they work. */
const serves = benches.includes('throughput') || benches.includes('latency');

/** All figures of a tree that are measured one tree at a time. */
async function measure(stage: Stage, tree: Tree): Promise<Figures> {
  return {
    ...(serves ? await serve(stage, tree, benches, settings) : {}),
    ...(benches.includes('index') ? await index(tree, settings) : {}),
  };
}

async function pairsOf(stage: Stage, here: Tree, there: Tree): Promise<readonly Pair[]> {
  const pairs: Pair[] = [];
  const isIdleWanted = benches.includes('idle');
  const idleMs = isIdleWanted ? 1_000 * (settings.settleSeconds + rounds * settings.seconds) : 0;
  const endMs = begunMs + values.minutes * 60_000 - idleMs;
  if (serves) say(`to warm up, not counted: ${JSON.stringify(await serve(stage, there, benches, settings))}`);
  let longestMs = 0;
  for (let round = 1; round <= rounds && benches.some((bench) => bench !== 'idle'); round += 1) {
    const startMs = performance.now();
    if (round > 1 && startMs + longestMs > endMs) break;
    const isHereFirst = round % 2 === 1;
    const first = await measure(stage, isHereFirst ? here : there);
    const second = await measure(stage, isHereFirst ? there : here);
    pairs.push(isHereFirst ? [first, second] : [second, first]);
    longestMs = Math.max(longestMs, performance.now() - startMs);
    say(`round ${round}: ${JSON.stringify(pairs.at(-1))}`);
  }
  if (!isIdleWanted) return pairs;
  const looks = await idle(stage, [here, there], rounds, settings);
  return [...pairs, ...looks.map(([one = {}, other = {}]): Pair => [one, other])];
}

const NUMBER = new Intl.NumberFormat('en', { maximumSignificantDigits: 4 });

function text(found: readonly Compared[], there: Tree): string {
  const columns = ['figure', '>this tree', `>${there.name}`, '>ratio', '>spread', 'this tree is'];
  const rows = found.map(({ figure, here, there: other, ratio, low, high, pairs, verdict, isLoss }) => [
    figure,
    NUMBER.format(here),
    NUMBER.format(other),
    ratio.toFixed(2),
    pairs > 1 ? `${boundText(low)} to ${boundText(high)}` : 'one pair',
    isLoss ? `below ${failBelow}` : verdict,
  ]);
  return `${table(columns, rows)}\nAbove 1 this tree is better. Spread: ${METHOD}.\n`;
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
const here = thisTree();
using there = await treeOf(values.compare);
say(`comparing ${here.name} with ${there.name}: ${benches.join(', ')}`);
await using stage = await Stage.open(say);
const found = compared(await pairsOf(stage, here, there), failBelow);
process.stdout.write(
  values.json
    ? `${JSON.stringify({ here: here.name, there: there.name, method: METHOD, figures: found })}\n`
    : text(found, there),
);
process.exitCode = found.some((one) => one.isLoss) ? 1 : 0;
