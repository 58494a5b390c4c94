import { parseArgs } from 'node:util';
import { startProcessServers } from '../support/process-servers.ts';
import { freshSeed } from '../support/seeded.ts';
import { SUITE } from '../support/servers.ts';
import { runSoak } from './soak.ts';
import { SOAK_FAULTS } from './soak-faults.ts';

/** The client library in services, on real servers, through faults of all kinds. */
const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    seed: { type: 'string' },
    fault: { type: 'string', default: '' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Runs services with the client library through faults of workers, broker and neighbours, and judges all they got.',
      'npm run bench:client-soak -- [--minutes 10] [--seed N] [--fault TEXT] [--json]',
      '  --minutes   faults begin for this time; each occurs once at least',
      '  --seed      decides the order of the faults (random, and printed)',
      '  --fault     only faults with this text in their names:',
      ...SOAK_FAULTS.map(({ name }) => `                ${name}`),
      '',
      'Exit code: 0 if no ID came twice and no call failed that no rule allows, 1 if not, 2 for invalid arguments.',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const forMs = 60_000 * Number(values.minutes);
const seed = Number(values.seed ?? freshSeed());
const isKnown = SOAK_FAULTS.some(({ name }) => name.includes(values.fault));
if (!(forMs >= 0) || !Number.isSafeInteger(seed) || !isKnown) {
  process.stderr.write('--minutes and --seed take numbers, and --fault a part of a name that --help has\n');
  process.exit(2);
}
const trace = (line: string) => process.stderr.write(`${line}\n`);
trace(`seed ${seed}`);
const servers = await startProcessServers(trace, SUITE);
try {
  const report = await runSoak({ servers, forMs, seed, scale: 2, only: values.fault, trace });
  process.stdout.write(`${JSON.stringify(report, null, values.json ? undefined : 2)}\n`);
  process.exitCode = report.findings.length === 0 ? 0 : 1;
} finally {
  await servers.stop();
}
