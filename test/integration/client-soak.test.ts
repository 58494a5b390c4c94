import { expect, test } from 'vitest';
import { runSoak } from '../bench/soak.ts';
import { SOAK_FAULTS } from '../bench/soak-faults.ts';
import { ownServers } from '../support/own-servers.ts';
import { drawSeed } from '../support/seeded.ts';
import { report } from '../support/whole-history.ts';

/** Its broker is killed. */
const servers = await ownServers({ kafka: true });

test('beside a flood of large requests, killed and suspended workers, a stuck partition, a recreated reply topic and a killed broker no ID comes twice, and no call fails while the workers serve', async ({
  annotate,
}) => {
  const trace = (line: string) => void process.stderr.write(`soak: ${line}\n`);
  const soak = await runSoak({ servers, forMs: 0, seed: drawSeed(), scale: 1, trace });
  await report(annotate, `a soak of the client: ${JSON.stringify(soak)}`);
  expect(soak.findings).toEqual([]);
  expect(soak.duplicates).toBe(0);
  expect(Object.keys(soak.faults)).toHaveLength(SOAK_FAULTS.length);
});
