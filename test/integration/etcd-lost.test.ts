import { describe, test } from 'vitest';
import { decodeReply, type Followed } from '../support/followed.ts';
import { partitionOf } from '../support/load.ts';
import { OwnEtcd, requireOwnEtcd } from '../support/own-etcd.ts';
import { KEPT_LEASE, SHORT_LEASE, SHORT_SESSION } from '../support/realm.ts';
import { Scene } from '../support/scene.ts';
import { suiteServers } from '../support/servers.ts';
import { closed, nextReplyBy, opened, silencesMs, WITHOUT_ETCD } from '../support/stops.ts';
import { report } from '../support/whole-history.ts';
import { runIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 6;
const REFUSE_MS = Number(SHORT_LEASE.ETCD_REFUSE_AFTER_MS);

/** Resolves when the successor has answered a request to one of the partitions, with the time that it took. */
async function takenOver(
  partitions: ReadonlySet<number>,
  successor: WorkerProcess,
  replies: Followed,
): Promise<number> {
  const begunMs = performance.now();
  const { workerId } = await successor.ready();
  const from = replies.seen.length;
  const isFirst = (one: Followed['seen'][number]) => {
    if (!partitions.has(partitionOf(String(one.message.key)))) return false;
    const { reply } = decodeReply(one);
    return 'batch' in reply && reply.batch.workerId === workerId;
  };
  await replies.until('a reply by the successor', (seen) => seen.slice(from).some(isFirst));
  return Math.round((replies.seen.slice(from).find(isFirst)?.atMs ?? Number.NaN) - begunMs);
}

describe.concurrent('etcd does not serve a worker', () => {
  test('a worker that is cut off leaves the group, the other one serves its partitions, and it returns when healed', async ({
    annotate,
    expect,
  }) => {
    const env = { ...KEPT_LEASE, GATE_GRACE_MS: '2000' };
    await using scene = await Scene.open({ partitions: PARTITIONS, env });
    const link = await scene.link();
    const [victim, other] = [scene.start(link.env), scene.start()];
    const shared = () => Promise.all([victim, other].map((worker) => worker.hasPartitions(PARTITIONS / 2)));
    await shared();
    const history = await scene.underLoad(async () => {
      await nextReplyBy(victim, scene.replies);
      const from = victim.lines.length;
      const partitions = new Set(victim.partitions());
      link.cut();
      const cutMs = performance.now();
      const moved = takenOver(partitions, other, scene.replies);
      const stop = await closed(victim, from);
      expect(WITHOUT_ETCD).toContain(stop.reason);
      const movedMs = await moved;
      await other.hasPartitions(PARTITIONS);
      const healedMs = performance.now();
      link.heal();
      const open = await opened(victim, from);
      const repliedMs = await nextReplyBy(victim, scene.replies);
      await shared();
      await report(
        annotate,
        `one worker cut off: ${Math.round(stop.seenMs - cutMs)} ms to the stop, ${movedMs} ms to the other's first reply for its partitions; ` +
          `healed, open after ${Math.round(open.seenMs - healedMs)} ms, first reply after ${Math.round(repliedMs - healedMs)} ms`,
      );
    });
    // On a busy machine a process may be paused, or etcd or Kafka late for a short lease: each stop has such a cause.
    expect(history.stops).toBeGreaterThanOrEqual(1);
    expect(Math.min(...silencesMs([victim, other]))).toBeGreaterThanOrEqual(REFUSE_MS);
    const caused = [...WITHOUT_ETCD, 'RESERVATION_EXHAUSTED'];
    const reasons = other.lines.flatMap(({ msg, reason }) => (msg === 'gate closed' ? [String(reason)] : []));
    expect(reasons.filter((reason) => !caused.includes(reason))).toEqual([]);
  });

  test('a worker is frozen for longer than its lease and another takes its worker ID: both publish, and all IDs differ', async ({
    annotate,
    expect,
  }) => {
    await using scene = await Scene.open({
      partitions: PARTITIONS,
      env: { ...SHORT_LEASE, ...SHORT_SESSION, POOL_FIRST: '7', POOL_LAST: '8' },
    });
    const { replies } = scene;
    const first = scene.start();
    const { workerId } = await first.ready();
    const heir = scene.start({ WORKER_ID: String(workerId) });
    await heir.line(({ reason }) => reason === 'POOL_EXHAUSTED');
    const history = await scene.underLoad(async () => {
      await nextReplyBy(first, replies);
      const from = first.lines.length;
      first.kill('SIGSTOP');
      const frozenMs = performance.now();
      await heir.ready();
      const heirMs = await nextReplyBy(heir, replies);
      first.kill('SIGCONT');
      const wokenMs = performance.now();
      const stop = await closed(first, from);
      const open = await opened(first, from);
      await Promise.all([first, heir].map((worker) => worker.hasPartitions(PARTITIONS / 2)));
      await Promise.all([first, heir].map((worker) => nextReplyBy(worker, replies)));
      await report(
        annotate,
        `frozen past its lease: ${Math.round(heirMs - frozenMs)} ms to the heir's first reply; woken, ${stop.reason} after ` +
          `${Math.round(stop.seenMs - wokenMs)} ms, open under another ID after ${Math.round(open.seenMs - wokenMs)} ms`,
      );
    });
    expect(first.lines.findLast(({ msg }) => msg === 'worker ID acquired')?.workerId).toBe(workerId === 7 ? 8 : 7);
    await report(annotate, `frozen past its lease: ${JSON.stringify(history)}`);
  });

  test('etcd at its quota: workers name the alarm and the remedy, ask about once a second, and resume without a restart', async ({
    annotate,
    expect,
    skip,
  }) => {
    requireOwnEtcd({ skip });
    await using etcd = await OwnEtcd.small();
    const servers = { ...suiteServers(), etcdEndpoints: etcd.endpoints };
    // The reservation is short, and the lease is not lost meanwhile.
    const env = { ...SHORT_LEASE, LEASE_TTL_SECONDS: KEPT_LEASE.LEASE_TTL_SECONDS };
    await using scene = await Scene.open({ partitions: PARTITIONS, env }, servers);
    const { replies, realm } = scene;
    const holder = scene.start();
    await holder.ready();
    const remedy = /database space exceeded.*alarm NOSPACE\): compact and defragment it, then disarm the alarm/;
    const readyz = async (worker: WorkerProcess) => await (await worker.ops('/readyz')).json();
    const history = await scene.underLoad(async () => {
      await nextReplyBy(holder, replies);
      const from = holder.lines.length;
      await etcd.fill();
      // Before that the machine may pause it, or etcd be slow.
      const stop = await holder.line(({ reason }) => reason === 'RESERVATION_EXHAUSTED', from);
      const named = { reason: stop.reason, detail: expect.stringMatching(remedy) };
      await expect.poll(() => readyz(holder)).toMatchObject(named);
      await holder.line(({ level, remedy: told }) => level === 50 && /disarm the alarm/.test(String(told)), from);

      const late = scene.start();
      await expect
        .poll(() => readyz(late).catch(() => undefined))
        .toMatchObject({
          reason: 'NO_IDENTITY',
          detail: expect.stringMatching(remedy),
        });
      const { code, stdout } = await runIdalloc(['doctor'], realm.env);
      expect([code, stdout]).toEqual([1, expect.stringMatching(/alarm NOSPACE.*compact and defragment/s)]);

      const countedMs = performance.now();
      const before = await refusedWrites(holder);
      await expect.poll(() => refusedWrites(holder)).toBeGreaterThanOrEqual(before + 3);
      const perSecond = ((await refusedWrites(holder)) - before) / ((performance.now() - countedMs) / 1_000);

      await etcd.free();
      const freeMs = performance.now();
      const [open, acquired] = await Promise.all([
        opened(holder, holder.lines.indexOf(stop)),
        late.line(({ msg }) => msg === 'worker ID acquired'),
      ]);
      await Promise.all([holder, late].map((worker) => nextReplyBy(worker, replies)));
      expect(holder.lines.filter(({ msg }) => msg === 'worker ID acquired')).toHaveLength(1);
      await report(
        annotate,
        `etcd at its quota: ${perSecond.toFixed(1)} writes/s of a worker; open ${Math.round(open.seenMs - freeMs)} ms after the repair, ` +
          `a worker ID for the one that started meanwhile after ${Math.round(acquired.seenMs - freeMs)} ms`,
      );
    });
    expect(history.stops).toBeGreaterThanOrEqual(1);
  });
});

/** How many writes etcd has refused this worker. */
async function refusedWrites(worker: WorkerProcess): Promise<number> {
  const text = await (await worker.ops('/metrics')).text();
  return Number(/^idalloc_etcd_call_seconds_count\{call="transact",outcome="refused"\} (\d+)$/m.exec(text)?.[1] ?? 0);
}
