import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Load } from './load.ts';
import { MAIN, Stage } from './stage.ts';

/** The cost of a worker that has nothing to do: processor time, and connections to each broker. */
const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    partitions: { type: 'string', default: '12' },
    main: { type: 'string', default: MAIN },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures a worker without requests: its share of a core, and its connections to each broker.',
      'npm run bench:idle -- [--seconds 60] [--partitions 12] [--json]',
      '  --main PATH    main.ts of the worker, to compare another checkout',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const seconds = Number(values.seconds);
const partitions = Number(values.partitions);

const START_TIMEOUT_MS = 60_000;
/** By then unused connections are closed, and compilation and garbage collection after the start are over. */
const SETTLE_MS = 70_000;
const say = (line: string) => process.stderr.write(`${line}\n`);

await using stage = await Stage.open(say, values.main);
const topics = await stage.topics(partitions);
await using running = stage.start('worker', topics);
{
  await using load = new Load(stage, topics, running, 1, () => false);
  await load.firstReply(START_TIMEOUT_MS);
}
await pause(SETTLE_MS);
const [beganMs, beganCpuMs] = [performance.now(), running.cpuMs()];
await pause(seconds * 1_000);
const share = (running.cpuMs() - beganCpuMs) / (performance.now() - beganMs);
running.check();
const connections = stage.brokers.map((broker) => running.connections(broker));

const result = { seconds, partitions, core_percent: Number((share * 100).toFixed(2)), connections };
const text = `processor time: ${result.core_percent} % of one core; connections to each broker: ${connections.join(', ')}`;
process.stdout.write(`${values.json ? JSON.stringify(result) : text}\n`);
