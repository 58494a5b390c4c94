import { startProcessServers } from '../support/process-servers.ts';
import { freshSeed } from '../support/seeded.ts';
import { SUITE } from '../support/servers.ts';
import { optionsOf, refuse } from './options.ts';
import { runSoak } from './soak.ts';
import { SOAK_FAULTS } from './soak-faults.ts';

/** The client library in services, on real servers, through faults of all kinds. */
const options = optionsOf(
  'bench:client-soak',
  [
    'Runs services with the client library through faults of workers, broker and neighbours, and judges all they got.',
    'Exit code: 0 if no ID came twice and no call failed that no rule allows, 1 if not, 2 for invalid arguments. Faults:',
    ...SOAK_FAULTS.map(({ name }) => `  ${name}`),
  ],
  { minutes: 10, seed: '', fault: '' },
  {
    minutes: 'faults begin for this time; each occurs once at least',
    seed: 'decides the order of the faults (random, and printed)',
    fault: 'only faults with this text in their names',
  },
);
const seed = options.seed === '' ? freshSeed() : Number(options.seed);
const isKnown = SOAK_FAULTS.some(({ name }) => name.includes(options.fault));
if (!(options.minutes >= 0) || !Number.isSafeInteger(seed) || !isKnown)
  refuse('--minutes and --seed take numbers, and --fault a part of a name that --help has');
const trace = (line: string) => process.stderr.write(`${line}\n`);
trace(`seed ${seed}`);
const servers = await startProcessServers(trace, SUITE);
try {
  const forMs = 60_000 * options.minutes;
  const report = await runSoak({ servers, forMs, seed, scale: 2, only: options.fault, trace });
  process.stdout.write(`${JSON.stringify(report, null, options.json ? undefined : 2)}\n`);
  process.exitCode = report.findings.length === 0 ? 0 : 1;
} finally {
  await servers.stop();
}
