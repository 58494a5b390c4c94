import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freePorts } from '../../ops/dev/ports.ts';
import { lead, UNTIL } from '../support/cluster-scene.ts';
import { KafkaCluster } from '../support/kafka-cluster.ts';
import { LoadedWorker, readiness } from '../support/loaded-worker.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { SilentLink } from '../support/silent-link.ts';
import { report } from '../support/whole-history.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';

const PARTITIONS = 3;
const ANSWERED = 60;
/** The broker that one worker is cut off from. */
const FAR = 3;
const why = whyNoProcesses('kafka');
const stack = new AsyncDisposableStack();
let cluster: KafkaCluster;
/** The way to the broker for clients of the listener CLIENT; those of BROKER go there directly. */
let link: SilentLink;

beforeAll(async () => {
  if (why !== undefined) return;
  const [port = 0] = await freePorts(1);
  const properties = (node: number, [, broker]: readonly number[]): Record<string, string> => ({
    'leader.imbalance.check.interval.seconds': '1',
    'leader.imbalance.per.broker.percentage': '0',
    ...(node === FAR && { 'advertised.listeners': `CLIENT://127.0.0.1:${port},BROKER://127.0.0.1:${broker}` }),
  });
  cluster = stack.use(await KafkaCluster.start(properties));
  link = stack.use(await SilentLink.start(port, Number(cluster.brokers[FAR - 1]?.split(':')[1])));
});

afterAll(() => stack.disposeAsync());

describe.skipIf(why !== undefined)(`three brokers${why === undefined ? '' : `: ${why}`}`, () => {
  test('a worker that one of them is silent to hands the partitions of that broker over, and gets them back', async ({
    annotate,
  }) => {
    const realm = await Realm.create(
      { ...suiteServers(), brokers: cluster.internal },
      { partitions: PARTITIONS, replicas: PARTITIONS },
    );
    await using loaded = await LoadedWorker.start(realm, { KAFKA_BROKERS: cluster.brokers.slice(0, 2).join() });
    const { worker } = loaded;
    // A member that does not reach its coordinator loses its membership, which is another fault; without the witness it
    // serves nothing.
    await lead(realm, { never: FAR }, ['__consumer_offsets', realm.witnessTopic]);
    await lead(realm, { always: FAR }, [realm.requestTopic]);
    const other = realm.worker();
    await other.ready();
    // Not before each knows what it has: for a moment the other one has a partition that this one still lists.
    const counts = () => [worker, other].map((one) => one.partitions().length).toSorted();
    await expect.poll(counts, UNTIL).toEqual([1, 2]);
    const own = new Set(worker.partitions());

    const from = worker.lines.length;
    const silentMs = Date.now();
    link.silence();
    const unready = await worker.line(({ msg }) => /can't be served from here/.test(msg ?? ''), from);
    expect(unready).toMatchObject({ partitions: [...own], error: expect.stringContaining(`${realm.requestTopic}/`) });
    await other.hasPartitions(PARTITIONS);
    await loaded.answered(loaded.load.requests.length - loaded.answers);
    await loaded.answered(ANSWERED);
    expect(await readiness(worker), 'no partition of its own waits').toMatchObject({ status: 200 });
    const joined = other.lines.findLast(({ msg }) => msg === 'joined the request group');
    await report(
      annotate,
      `${Number(joined?.time) - silentMs} ms from the silence until another worker had the partitions`,
    );

    link.restore();
    await expect.poll(() => worker.partitions().length, UNTIL).toBe(own.size);
    await loaded.answered(ANSWERED);
    await loaded.check();
  });
});
