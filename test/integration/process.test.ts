import { expect, test } from 'vitest';
import { wholeTopic } from '../../src/adapters/kafka/topics/spans.ts';
import { EtcdLink } from '../support/etcd-link.ts';
import { readiness } from '../support/loaded-worker.ts';
import { ModernConsumer } from '../support/modern-consumer.ts';
import { Realm } from '../support/realm.ts';
import { LEAST_SESSION_MS, suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';
import { runIdalloc } from '../support/worker-process.ts';

const AT_ONCE = 100;
const ERROR_LEVEL = 50;

test('SIGTERM under load commits what was answered, leaves the group and frees the worker ID immediately', async () => {
  await using realm = await Realm.create(suiteServers());
  const replies = await realm.follow();
  const worker = realm.worker();
  const { workerId } = await worker.ready();
  const ended = new AbortController();
  const sending = sendUntil(realm, ended.signal);
  await replies.until('some replies', (seen) => seen.length > 0);

  worker.kill('SIGTERM');
  expect(await worker.ended()).toEqual({ code: 0, signal: null });
  ended.abort();
  const sent = await sending;
  expect(worker.lines.at(-1)?.msg).toBe('stopped');
  expect(await realm.owner(Number(workerId))).toBeUndefined();
  const { groups } = await realm.admin.describeGroups([realm.groupId]);
  expect(groups[0]?.members).toEqual([]);

  const committed = [...(await realm.committed()).values()].reduce((sum, offset) => sum + offset, 0);
  const published = await realm.records(realm.replyTopic);
  await replies.until('what was published', (seen) => seen.length === published);
  expect(committed).toBe(published);
  expect(committed).toBeGreaterThan(0);
  expect(committed).toBeLessThan(sent);

  const next = realm.worker();
  const answered = await replies.replies(sent);
  expect([...answered.values()].filter((all) => all.length > 1)).toEqual([]);
  expect(await next.metric('idalloc_replays_total')).toBe(0);
});

/** Sends requests without a break until the end is signalled, and some after it; returns how many. */
async function sendUntil(realm: Realm, ended: AbortSignal): Promise<number> {
  let sent = 0;
  for (let isLast = false; !isLast; sent += AT_ONCE) {
    isLast = ended.aborted;
    const ids = Array.from({ length: AT_ONCE }, (_, i) => `r${sent + i}`);
    await realm.send(ids.map((correlationId) => ({ correlationId, count: 10 })));
  }
  return sent;
}

test('a second SIGTERM ends a stop in progress immediately', async ({ annotate }) => {
  await using realm = await Realm.create(suiteServers());
  await using link = await EtcdLink.open(suiteServers());
  const worker = realm.worker(link.env);
  await worker.ready();
  link.silence(); // so that releasing the identity takes its whole time
  worker.kill('SIGTERM');
  await worker.line(({ msg }) => msg === 'stopping: finishing the requests in progress');
  const begunMs = performance.now();
  worker.kill('SIGTERM');
  expect(await worker.ended()).toEqual({ code: 143, signal: null });
  expect(worker.lines.some(({ msg }) => msg === 'stopped')).toBe(false);
  await report(annotate, `a second SIGTERM ended the worker in ${Math.round(performance.now() - begunMs)} ms`);
});

test('a serving worker is healthy and ready, has metrics, and logs nothing above level info', async () => {
  await using realm = await Realm.create(suiteServers());
  const replies = await realm.follow();
  const worker = realm.worker();
  await worker.ready();
  await realm.send([{ correlationId: 'one', count: 17 }]);
  await replies.reply('one');

  const healthz = await worker.ops('/healthz');
  expect([healthz.status, await healthz.json()]).toEqual([200, { status: 'alive' }]);
  const readyz = await worker.ops('/readyz');
  expect([readyz.status, await readyz.json()]).toEqual([200, { status: 'ready' }]);
  expect(await worker.metric('idalloc_ids_total')).toBe(17);
  expect(await worker.metric('idalloc_requests_total{result="issued"}')).toBe(1);
  expect(await worker.metric('idalloc_gate{reason="open"}')).toBe(1);
  expect(await worker.metric('idalloc_batch_seconds_count')).toBeGreaterThan(0);
  await expect.poll(() => worker.metric('idalloc_lease_margin_seconds')).toBeGreaterThan(0);
  expect(await worker.metric('idalloc_ceiling_margin_seconds')).toBeGreaterThan(0);
  const drift = () =>
    Promise.all(['low', 'high'].map((b) => worker.metric(`idalloc_clock_drift_seconds{bound="${b}"}`)));
  await expect
    .poll(() =>
      drift().then(
        ([low = 1, high = -1]) => low <= 0.1 && high >= -0.1,
        () => false,
      ),
    )
    .toBe(true);

  await worker.stop();
  expect(worker.errors).toBe('');
  expect(worker.lines.filter(({ level = ERROR_LEVEL }) => level >= ERROR_LEVEL)).toEqual([]);
});

test('a worker without configuration names all missing variables together and exits with 78', async () => {
  const { code, stderr } = await runIdalloc(['worker'], { LEASE_TTL_SECONDS: 'soon', OPS_PORT: '70000' });
  expect(code).toBe(78);
  expect(stderr).toMatch(/^CONFIG_INVALID: 5 configuration errors/);
  for (const name of ['KAFKA_BROKERS', 'ETCD_ENDPOINTS', 'DATACENTER_ID', 'LEASE_TTL_SECONDS', 'OPS_PORT']) {
    expect(stderr).toMatch(new RegExp(`^ +${name}: `, 'm'));
  }
});

test('a worker whose topics do not exist exits, names each, and names the command that creates them', async () => {
  await using realm = await Realm.create(suiteServers());
  const worker = realm.worker({ REQUEST_TOPIC: 'no-such.requests', LEDGER_TOPIC: 'no-such.ledger' });
  expect(await worker.ended()).toEqual({ code: 1, signal: null });
  const last = worker.lines.find(({ level }) => level === 60);
  for (const topic of ['no-such.requests', 'no-such.ledger']) {
    expect(last?.msg).toContain(`TOPIC_INVALID`);
    expect(last?.msg).toContain(`topic '${topic}' does not exist: run 'idalloc topics init'`);
  }
});

test('a worker whose session the brokers refuse is not ready, and names the variable and the limit', async () => {
  await using realm = await Realm.create(suiteServers());
  const worker = realm.worker({ KAFKA_SESSION_TIMEOUT_MS: String(LEAST_SESSION_MS - 1) });
  const { level, error } = await worker.line(({ code }) => code === 'KAFKA_REFUSED');
  expect(level).toBe(ERROR_LEVEL);
  expect(error).toMatch(/refuse a session of 1999 ms .*KAFKA_SESSION_TIMEOUT_MS .*group\.min\.session\.timeout\.ms/);
  expect(await readiness(worker)).toEqual({ status: 503, reason: 'KAFKA_REFUSED', detail: error });
});

test("a consumer of Kafka's new protocol in the group is named, nothing is lost to its commits, and the worker serves once it has left", async ({
  annotate,
}) => {
  await using realm = await Realm.create(suiteServers(), { partitions: 6 });
  const replies = await realm.follow();
  const worker = realm.worker();
  await worker.hasPartitions(6);
  await realm.send([{ correlationId: 'before', count: 1 }]);
  await replies.reply('before');

  await using foreign = await ModernConsumer.join(suiteServers().brokers[0] ?? '', realm.groupId, realm.requestTopic);
  const { level, error } = await worker.line(({ code }) => code === 'KAFKA_REFUSED');
  expect(level).toBe(ERROR_LEVEL);
  expect(error).toMatch(
    /has a consumer that is not a worker: stop that .*; not a worker: 'modern-consumer' at [\d.]+$/,
  );
  expect(await readiness(worker)).toEqual({ status: 503, reason: 'KAFKA_REFUSED', detail: error });
  const [doctor, replay] = await Promise.all([
    runIdalloc(['doctor', '--json'], realm.env),
    runIdalloc(['replay', '--partition', '0', '--offset', '0', '--yes'], realm.env),
  ]);
  const { checks } = JSON.parse(doctor.stdout);
  expect(checks.find(({ name }: { name: string }) => name === 'consumer group')).toMatchObject({
    state: 'fault',
    detail: expect.stringMatching(/; not a worker: 'modern-consumer' at [\d.]+$/),
  });
  expect(replay.stderr).toMatch(/^GROUP_ACTIVE: group '.*' has \d members? \([\d.]+/);
  const ids = Array.from({ length: 60 }, (_, i) => `waiting-${i}`);
  await realm.send(ids.map((correlationId) => ({ correlationId, count: 1 })));
  const spans = await wholeTopic(realm.source, realm.requestTopic);
  await foreign.commit(new Map(spans.map(({ partition, to }) => [partition, to])));
  expect(replies.seen).toHaveLength(1);

  await foreign[Symbol.asyncDispose]();
  const leftMs = performance.now();
  await replies.reply(ids[0] ?? '');
  await report(annotate, `first reply ${Math.round(performance.now() - leftMs)} ms after it had left`);
  for (const id of ids) expect('batch' in (await replies.reply(id)).reply).toBe(true);
  await worker.line(({ msg }) => msg === 'the brokers accept this worker again');
  expect(await readiness(worker)).toEqual({ status: 200 });
  expect(await worker.metric('idalloc_foreign_offsets_total')).toBeGreaterThan(0);
});

test('a ledger on one broker is refused without ALLOW_WEAK_LEDGER', async () => {
  await using realm = await Realm.create(suiteServers());
  const worker = realm.worker({ ALLOW_WEAK_LEDGER: '0' });
  expect(await worker.ended()).toEqual({ code: 1, signal: null });
  expect(worker.lines.find(({ level }) => level === 60)?.msg).toMatch(/^LEDGER_WEAK: .*ALLOW_WEAK_LEDGER=1/);
});

test('a second worker with the same index directory is refused', async () => {
  await using realm = await Realm.create(suiteServers());
  const first = realm.worker();
  await first.ready();
  const second = realm.worker({ INDEX_DIR: first.indexDir });
  expect(await second.ended()).toEqual({ code: 1, signal: null });
  expect(second.lines.find(({ level }) => level === 60)?.msg).toMatch(/^INDEX_LOCKED: /);
});
