import { parseArgs } from 'node:util';
import { summary } from '../search.ts';
import { MUTANTS } from './mutants.ts';
import { exploreExample } from './run.ts';
import { DEEP, QUICK } from './worlds.ts';

const HELP = `Explores the model of sequence heads (docs/internals/decisions/the-swap-decides.md): all worlds, then all mistakes.

  --quick        what npm test explores
  --mutants      the mistakes alone, each with the shortest way to its harm
  --world PART   only those with this part in their names
  --seconds N    leaves out worlds, with a note, once this much time has passed
`;

function main(): void {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean' },
      mutants: { type: 'boolean' },
      world: { type: 'string' },
      help: { type: 'boolean' },
    },
  });
  if (values.help) return void process.stdout.write(HELP);
  const isWanted = ({ name }: { name: string }) => values.world === undefined || name.includes(values.world);
  if (!values.mutants) for (const run of [...QUICK, ...(values.quick ? [] : DEEP)].filter(isWanted)) {
    const began = performance.now();
    const progress = (states: number, done: number) =>
      process.stderr.write(`${run.name}: ${states} states, ${done} done\n`);
    const { result, continued } = exploreExample(run, { states: 60_000_000, progress });
    const seconds = ((performance.now() - began) / 1_000).toFixed(1);
    console.log(`${run.name}: ${summary(result)} ${continued}, ${seconds} s`);
    for (const c of run.sees) if (result.counts[c] === 0) console.log('NOT SEEN', c);
  }
  for (const run of MUTANTS.filter(isWanted)) {
    const began = performance.now();
    let r; try { r = exploreExample(run, { states: 250_000 }); } catch (e) { console.log('---', run.name, String(e)); continue; }
 const { result, continued } = r;
    const seconds = ((performance.now() - began) / 1_000).toFixed(1);
    console.log(`${run.name}: ${process.env.TRACE ? summary(result) : result.violation?.at(-1)} ${result.states} ${continued}, ${seconds} s`);
  }
}

main();
