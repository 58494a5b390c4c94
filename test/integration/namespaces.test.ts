import { expect, test } from 'vitest';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const FATAL_LEVEL = 60;

/** The error of a worker that refuses to start. */
async function refusal(worker: WorkerProcess): Promise<string> {
  await worker.ended();
  return `${worker.lines.find(({ level }) => level === FATAL_LEVEL)?.msg ?? ''}${worker.errors}`;
}

test('a second namespace of one datacenter in the same etcd is refused, and the owner of the datacenter is named', async () => {
  await using realm = await Realm.create(suiteServers());
  const first = realm.worker();
  await first.ready();
  const said = await refusal(realm.worker({ ETCD_PREFIX: `${realm.env.ETCD_PREFIX}-second` }));
  expect(said).toMatch(/^NAMESPACE_MISMATCH: /);
  expect(said).toContain(realm.keys.root);
  expect(first.gate()).toBe('open');
});

test('another witness topic is refused, since it would not show what the first namespace reserves', async () => {
  await using realm = await Realm.create(suiteServers());
  await realm.worker().ready();
  const other = `${realm.witnessTopic}.second`;
  await realm.createTopic(other, { configs: { 'cleanup.policy': 'compact' } });
  const said = await refusal(realm.worker({ ETCD_PREFIX: `${realm.env.ETCD_PREFIX}-second`, WITNESS_TOPIC: other }));
  expect(said).toMatch(/CONFIG_INVALID|configuration/);
  expect(said).toContain('WITNESS_TOPIC');
});

test('doctor and namespace show report a datacenter that belongs to another namespace', async () => {
  await using realm = await Realm.create(suiteServers());
  await realm.worker().ready();
  const env = { ...realm.env, ETCD_PREFIX: `${realm.env.ETCD_PREFIX}-second` };
  const doctor = JSON.parse((await runIdalloc(['doctor', '--json'], env)).stdout);
  const [found] = doctor.checks.filter(({ name }: { name: string }) => name === 'namespace');
  expect(found).toMatchObject({ state: 'fault', detail: expect.stringContaining(realm.keys.root) });
  const show = await runIdalloc(['namespace', 'show', '--json'], env);
  expect({ code: show.code, fault: JSON.parse(show.stdout).fault }).toMatchObject({
    code: 1,
    fault: { code: 'NAMESPACE_MISMATCH', message: expect.stringContaining(realm.keys.root) },
  });
  const rebuild = await runIdalloc(['namespace', 'rebuild', '--yes'], env);
  expect(rebuild).toMatchObject({ code: 1, stderr: expect.stringMatching(/^NAMESPACE_MISMATCH: /) });
});

test('partitions added to both topics, and to the configuration, are refused, and the first count is named', async () => {
  await using realm = await Realm.create(suiteServers());
  const before = realm.worker();
  await before.ready();
  await before.stop();
  const topicPartitions = [realm.requestTopic, realm.ledgerTopic].map((topic) => ({ topic, count: 6 }));
  await realm.admin.createPartitions({ topicPartitions });
  const env = { REQUEST_PARTITIONS: '6' };
  const said = await refusal(realm.worker(env));
  expect(said).toMatch(/^NAMESPACE_MISMATCH: .*created with 3 partitions, but REQUEST_PARTITIONS is 6.*pair-of-topics/);
  const doctor = await runIdalloc(['doctor', '--json'], { ...realm.env, ...env });
  const faults = JSON.parse(doctor.stdout).checks.filter(({ name }: { name: string }) => name === 'namespace');
  expect(faults).toMatchObject([{ state: 'fault', detail: expect.stringContaining('with 3 partitions') }]);
});

test('a namespace of an earlier release stores its partition count at the next start, and keeps it', async () => {
  await using realm = await Realm.create(suiteServers());
  const first = realm.worker();
  await first.ready();
  const key = `${realm.keys.root}request-topics/${realm.requestTopic}/partitions`;
  await realm.etcd.transact([], [{ delete: key }]);
  await first.stop();
  await realm.worker().ready();
  expect((await realm.etcd.get([key])).get(key)?.value.toString()).toBe('3');
});
