import { describe, test } from 'vitest';
import { KEPT_LEASE, SHORT_LEASE, SHORT_SESSION } from '../support/realm.ts';
import { Scene } from '../support/scene.ts';
import { closed, nextReplyBy, opened, silencesMs } from '../support/stops.ts';
import { takenOver } from '../support/takeover.ts';
import { report } from '../support/whole-history.ts';

const PARTITIONS = 6;
const REFUSE_MS = Number(SHORT_LEASE.ETCD_REFUSE_AFTER_MS);

describe.concurrent('etcd is out of reach for one worker', () => {
  test('a worker that is cut off leaves the group, the other one serves its partitions, and it returns when healed', async ({
    annotate,
    expect,
  }) => {
    const env = { ...KEPT_LEASE, GATE_GRACE_MS: '2000' };
    await using scene = await Scene.open({ partitions: PARTITIONS, env });
    const link = await scene.link();
    const [victim, other] = [scene.worker(link.env), scene.worker()];
    const shared = () => Promise.all([victim, other].map((worker) => worker.hasPartitions(PARTITIONS / 2)));
    await shared();
    const history = await scene.underLoad(async () => {
      await nextReplyBy(victim, scene.replies);
      // A worker may serve before its first keep-alive; until then its deadline counts from the grant of the lease.
      await expect.poll(() => link.lastKeepAliveMs()).toBeGreaterThan(0);
      const from = victim.lines.length;
      const partitions = new Set(victim.partitions());
      link.cut();
      const cutMs = performance.now();
      const moved = takenOver({ partitions, successor: other, replies: scene.replies });
      const stop = await closed(victim, from);
      expect(stop.reason).toBe('LEASE_SUSPENDED');
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
    const caused = ['LEASE_SUSPENDED', 'PROCESS_PAUSED', 'RESERVATION_EXHAUSTED'];
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
    const first = scene.worker();
    const { workerId } = await first.ready();
    const heir = scene.worker({ WORKER_ID: String(workerId) });
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
});
