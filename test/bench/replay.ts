import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { fill, type Rate, rateOf } from './backlog.ts';
import { MAIN, median, Stage } from './stage.ts';

/**
 * The rate at which one worker serves requests a second time, as a ratio to the first time. A new consumer group reads
 * all requests again, as after `idalloc replay`, and each is found in the index that the first run filled.
 *
 * The index keeps the newest keys of each partition in memory: with fewer requests than the default, no look-up reads
 * the disk.
 */
const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '500000' },
    partitions: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '3' },
    'ids-per-request': { type: 'string', default: '1' },
    main: { type: 'string', default: MAIN },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures how fast a worker serves requests that it has decided before, as a ratio to the first time.',
      'npm run bench:replay -- [--requests 500000] [--partitions 8] [--rounds 3] [--ids-per-request 1] [--json]',
      '  --main PATH    main.ts of the worker, to compare another checkout',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const requests = Number(values.requests);
const partitions = Number(values.partitions);
const ids = Number(values['ids-per-request']);
const say = (line: string) => process.stderr.write(`${line}\n`);

await using stage = await Stage.open(say, values.main);

interface Round {
  readonly first: Rate;
  readonly replay: Rate;
  /** Rate of the replay divided by that of the first run. */
  readonly ratio: number;
}

async function runRound(round: number): Promise<Round> {
  const topics = await stage.topics(partitions);
  await fill(stage, topics, requests, ids);
  const indexDir = mkdtempSync(join(tmpdir(), 'idalloc-bench-'));
  const serve = async (name: string, before: number) => {
    const env = { INDEX_DIR: indexDir, KAFKA_GROUP_ID: `${topics.env.KAFKA_GROUP_ID}-${name}` };
    await using running = stage.start('worker', topics, env);
    const rate = await rateOf(stage, topics, running, requests, before);
    say(`round ${round}, ${name}: ${rate.requests_per_s} requests/s, ${rate.cpu_us} us of processor time per request`);
    return rate;
  };
  try {
    const first = await serve('first', 0);
    const written = await stage.replied(topics);
    const replay = await serve('replay', written);
    return { first, replay, ratio: replay.requests_per_s / first.requests_per_s };
  } finally {
    rmSync(indexDir, { recursive: true, force: true });
  }
}

const rounds: Round[] = [];
for (let round = 1; round <= Number(values.rounds); round += 1) rounds.push(await runRound(round));
const medianOf = (of: (round: Round) => number) => Number(median(rounds.map(of)).toFixed(3));
const ratio = medianOf((round) => round.ratio);
const cpuRatio = medianOf(({ first, replay }) => replay.cpu_us / first.cpu_us);
if (values.json) {
  const setting = { requests, partitions, ids_per_request: ids };
  process.stdout.write(`${JSON.stringify({ ...setting, replay_ratio: ratio, cpu_ratio: cpuRatio, rounds })}\n`);
} else {
  process.stdout.write(
    `requests/s of a replay: ${ratio} times the first run; processor time per request: ${cpuRatio} times\n`,
  );
}
