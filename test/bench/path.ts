import { mkdtempSync, rmSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ServedPath } from './served-path.ts';

/**
 * Processor time of one request on its way through a worker, without servers: record batches are decoded, decided and replied by the
 * worker's own code, over brokers that answer immediately. So sockets, wire framing and waiting are left out, and the figure
 * varies far less than that of a whole worker. With --profile it is divided by room.
 */
const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '400000' },
    rounds: { type: 'string', default: '5' },
    partitions: { type: 'string', default: '8' },
    profile: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures the processor time of a request on its way through a worker, without servers, sockets and waiting.',
      'npm run bench:path -- [--requests 400000] [--rounds 5] [--partitions 8] [--profile] [--json]',
      '  --profile   the share of each room in it as well',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const requests = Number(values.requests);
const rounds = Number(values.rounds);
const directory = mkdtempSync(join(tmpdir(), 'idalloc-path-'));
try {
  const path = new ServedPath(directory, Number(values.partitions));
  await path.serve(Math.ceil(requests / 4)); // compiles
  const session = new Session();
  session.connect();
  if (values.profile) {
    await session.post('Profiler.enable');
    await session.post('Profiler.start');
  }
  const found: number[] = [];
  for (let round = 1; round <= rounds; round += 1) found.push(await path.serve(requests / rounds));
  found.sort((one, other) => one - other);
  const cpu_us = Number((found[Math.floor(rounds / 2)] ?? Number.NaN).toFixed(2));
  process.stdout.write(
    values.json
      ? `${JSON.stringify({ requests, cpu_us })}\n`
      : `${cpu_us} us of processor time each (${found.map((f) => f.toFixed(2)).join(', ')})\n`,
  );
  if (values.profile) {
    const { profile } = await session.post('Profiler.stop');
    const fs = await import('node:fs');
    fs.writeFileSync('/tmp/path.cpuprofile', JSON.stringify(profile));
  }
  path[Symbol.dispose]();
} finally {
  rmSync(directory, { recursive: true, force: true });
}
