/** `npm run mutate`: small random mistakes in src that the unit tests, or the simulator, must notice. */
import { parseArgs } from 'node:util';
import { Rng } from '../sim/rng.ts';
import { Judge, type Verdict } from './judge.ts';
import { diffOf, draw, KINDS, lineOf, type Mutation, type MutationOfFile, mutated, mutationsOf } from './mutations.ts';
import { parse, readSources, type Sources } from './sources.ts';

const HELP = `npm run mutate -- --seed N --count M [--room R]... [--json]
npm run mutate -- --file FILE --from TEXT --to TEXT

Makes one small mistake after the other in the sources, as they are loaded: the files stay as they are. For each it runs the unit
tests that cover its file, the nearest first, until one fails; and if none does and the simulator loads the file, some of its seeds.
What survives is printed as a diff. Equal arguments draw equal mistakes. The kinds, each as likely as the others:

${Object.entries(KINDS)
  .map(([name, what]) => `  ${name.padEnd(10)} ${what}`)
  .join('\n')}

  --seed N     of the draw, and of the random values of the tests (1)
  --count M    how many mistakes (100)
  --room R     only in this folder of src; may be repeated
  --only K     of these only the K-th; may be repeated
  --file FILE  one mistake of your own, in this file: --to in place of --from, which it must have once
  --seeds N    of the simulator (40)
  --most P     how many may survive, in percent (3)
  --list       print the mistakes, and run nothing
  --json       print one JSON object on standard output
  --help       show this text

Exit code: 0 if no more than --most percent survived, 1 if more did, 2 for invalid arguments.
`;

type Options = ReturnType<typeof readArguments>;

function readArguments(args: readonly string[]) {
  const text = { type: 'string' } as const;
  const texts = { type: 'string', multiple: true, default: [] as string[] } as const;
  const flag = { type: 'boolean', default: false } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      ...{ seed: text, count: text, seeds: text, most: text, file: text, from: text, to: text },
      ...{ room: texts, only: texts, list: flag, json: flag, help: flag },
    },
  });
  const whole = (name: string, given: string): number => {
    if (/^\d{1,9}$/.test(given)) return Number(given);
    throw new Error(`--${name} is ${given}, must be a whole number below 10^9`);
  };
  const { file, from, to, room, list, json, help } = values;
  if ([file, from, to].some((one) => one === undefined) !== [file, from, to].every((one) => one === undefined))
    throw new Error('--file, --from and --to go together');
  return {
    ...{ file, from, to, room, list, json, help },
    seed: whole('seed', values.seed ?? '1'),
    count: whole('count', values.count ?? '100'),
    seeds: whole('seeds', values.seeds ?? '40'),
    most: whole('most', values.most ?? '3'),
    only: values.only.map((given) => whole('only', given)),
  };
}

/** The mutations that the options ask for. */
function chosen({ file, from = '', to = '', room, seed, count, only }: Options, sources: Sources): MutationOfFile[] {
  if (file !== undefined) {
    const parts = textOf(file, sources).split(from);
    if (parts.length !== 2) throw new Error(`${file} has the text ${parts.length - 1} times: ${from}`);
    const start = String(parts[0]).length;
    return [{ file, kind: 'operator', start, end: start + from.length, text: to }];
  }
  const isWanted = (path: string) => room.length === 0 || room.some((one) => path.startsWith(`src/${one}/`));
  const wanted = new Map([...sources.texts].filter(([path]) => path.startsWith('src/') && isWanted(path)));
  if (wanted.size === 0) throw new Error(`src has no room ${room.join(', ')}`);
  const all = [...parse(wanted)].flatMap(([path, tree]) => mutationsOf(tree).map((one) => ({ file: path, ...one })));
  const drawn = draw(all, count, new Rng(seed));
  return drawn.filter((_, i) => only.length === 0 || only.includes(i + 1));
}

function textOf(file: string, { texts }: Sources): string {
  const text = texts.get(file);
  if (text === undefined) throw new Error(`there is no file ${file}`);
  return text;
}

interface Judged extends Verdict {
  readonly at: string;
  readonly kind: Mutation['kind'];
  readonly diff: string;
}

async function mutate(options: Options): Promise<number> {
  const sources = readSources();
  const mutations = chosen(options, sources);
  const judged: Judged[] = [];
  await using judge = new Judge(sources, options, (what) => void process.stderr.write(`${what}\n`));
  for (const [i, mutation] of mutations.entries()) {
    const { file, kind } = mutation;
    const text = textOf(file, sources);
    const [at, diff] = [`${file}:${lineOf(text, mutation)}`, diffOf(text, mutation)];
    if (options.list) {
      process.stdout.write(`${i + 1} ${at} ${kind}\n${diff}\n`);
      continue;
    }
    const verdict = await judge.judge(file, mutated(text, mutation));
    judged.push({ at, kind, diff, ...verdict });
    const outcome = verdict.by === undefined ? `SURVIVED ${verdict.what}\n${diff}` : `${verdict.by}: ${verdict.what}`;
    process.stderr.write(`${i + 1} of ${mutations.length} ${at} ${kind}, ${outcome}\n`);
  }
  if (options.list) return 0;
  const survivors = judged.filter(({ by }) => by === undefined);
  const by = (who: Verdict['by']) => judged.filter((one) => one.by === who).length;
  const percent = judged.length === 0 ? 0 : Math.round((1_000 * survivors.length) / judged.length) / 10;
  if (options.json) process.stdout.write(`${JSON.stringify({ seed: options.seed, percent, mutations: judged })}\n`);
  else {
    for (const { at, kind, what, diff } of survivors)
      process.stdout.write(`${at} ${kind}, survived ${what}\n${diff}\n`);
    process.stdout.write(
      `${judged.length} mistakes: ${by('unit')} noticed by unit tests, ${by('simulator')} by the simulator; ${survivors.length} survived, ${percent} %\n`,
    );
  }
  return percent <= options.most ? 0 : 1;
}

async function main(): Promise<number> {
  let options: Options;
  try {
    options = readArguments(process.argv.slice(2));
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n\n${HELP}`);
    return 2;
  }
  if (!options.help) return await mutate(options);
  process.stdout.write(HELP);
  return 0;
}

process.exitCode = await main().catch((error: unknown) => {
  process.stderr.write(`mutate: ${error instanceof Error ? error.message : error}\n`);
  return 2;
});
