import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { installKafka } from '../../ops/bare/kafka.ts';
import { cacheDir } from '../../ops/dev/paths.ts';
import { run } from '../../ops/dev/run.ts';
import { KafkaCluster } from '../support/kafka-cluster.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { unique } from '../support/unique.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import { runIdalloc } from '../support/worker-process.ts';

const SOURCE = join(import.meta.dirname, '../support/managed-kafka/ManagedPolicy.java');
const COMPILE_MS = 120_000;
const HOUR_MS = 3_600_000;
/** What the services have where nobody sets anything. */
const OWN = {
  'compression.type': 'producer',
  'log.retention.bytes': String(250 * 2 ** 30),
  'log.segment.bytes': String(128 * 2 ** 20),
  'min.insync.replicas': '2',
};

const noKafka = whyNoProcesses('kafka', 'maven');
const stack = new AsyncDisposableStack();
let cluster: KafkaCluster;

beforeAll(async () => {
  if (noKafka !== undefined) return;
  const classes = await mkdtemp(join(tmpdir(), 'idalloc-policy-'));
  stack.defer(() => rm(classes, { recursive: true, force: true }));
  const libs = await installKafka(process.env, { cache: cacheDir(process.env), log: () => undefined });
  const args = ['-cp', `${libs}/*`, '-d', classes, SOURCE];
  await run({ command: 'javac', args, purpose: 'the build of a policy for topics', timeoutMs: COMPILE_MS });
  const properties = { ...OWN, 'create.topic.policy.class.name': 'ManagedPolicy' };
  cluster = stack.use(await KafkaCluster.start(() => properties, classes));
});

afterAll(() => stack.disposeAsync());

/** The settings that the service refused, whatever the topic. */
const settingsOf = (refused: readonly string[]) =>
  [...new Set(refused.map((line) => /: ([a-z.]+)=/.exec(line)?.[1]))].toSorted();

describe.skipIf(noKafka !== undefined)(`brokers with the rules of a service${noKafka ? `: ${noKafka}` : ''}`, () => {
  test.for([
    [
      'confluent',
      29,
      ['compression.type', 'min.cleanable.dirty.ratio', 'segment.ms', 'unclean.leader.election.enable'],
    ],
    ['msk', 193, ['min.cleanable.dirty.ratio', 'min.insync.replicas', 'segment.ms', 'unclean.leader.election.enable']],
  ] as const)(
    'refuse the plan of %s, accept what --managed sends, and a worker serves on its topics',
    async ([service, ledgerHours, refused]) => {
      const servers = { ...suiteServers(), brokers: cluster.brokers };
      const env = { LEDGER_RETENTION_MS: String(ledgerHours * HOUR_MS) };
      const options = { id: `${service}${unique()}`, replicas: 3, env, isManaged: true };
      await using realm = await Realm.create(servers, options);
      const other = { REQUEST_TOPIC: `${realm.requestTopic}.2`, LEDGER_TOPIC: `${realm.ledgerTopic}.2` };

      const plain = await runIdalloc(['topics', 'init'], { ...realm.env, ...other });
      expect(plain.code).not.toBe(0);
      expect(plain.stderr).toMatch(
        /was not created: .*Config [a-z.]+ (can't be set|must be at least).*topics init --managed/,
      );

      const made = await realm.command(['topics', 'init', '--managed'], 0, other);
      expect(made).toMatchObject({ created: Object.values(other), faults: [], warnings: [] });
      expect(refused).toEqual(expect.arrayContaining(settingsOf(made.refused)));
      expect(settingsOf(made.refused)).toContain('segment.ms');

      // The ledger would forget what can still be read as a request.
      const brief = { REQUEST_TOPIC: `${realm.requestTopic}.3`, LEDGER_TOPIC: `${realm.ledgerTopic}.3` };
      const short = { ...brief, LEDGER_RETENTION_MS: String(26 * HOUR_MS) };
      const judged = await realm.command(['topics', 'init', '--managed'], 1, short);
      expect(judged.faults).toMatchObject([{ code: 'LEDGER_RETENTION' }]);

      expect(await realm.command(['topics', 'check'])).toMatchObject({ faults: [], warnings: [] });
      const worker = realm.worker();
      await worker.ready();
      const args = ['request', '--count', '500', '--reply-topic', realm.replyTopic, '--correlation-id', 'first'];
      const { ids } = await realm.command(args);
      expect(ids).toHaveLength(500);
      expect(await realm.command(args)).toMatchObject({ ids, replayed: true });
    },
  );
});
