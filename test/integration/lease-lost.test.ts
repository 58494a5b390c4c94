import { describe, test } from 'vitest';
import { KEPT_LEASE, SHORT_LEASE } from '../support/realm.ts';
import { Scene } from '../support/scene.ts';
import { closed, nextReplyBy, opened, reopeningsMs } from '../support/stops.ts';
import { report } from '../support/whole-history.ts';

const PARTITIONS = 6;
const REFUSE_MS = Number(SHORT_LEASE.ETCD_REFUSE_AFTER_MS);
/** The default of ETCD_REFUSE_AFTER_MS, which one test uses. */
const REAL_REFUSE_MS = 15_000;
const SLOW_MS = 2_000;
/** pino's number of the level. */
const WARN = 40;
const REOPENINGS = 5;
/** A worker that does not stop yet while it gets no answer for as long as two calls take on a busy machine. */
const PATIENT = { ...KEPT_LEASE, ETCD_REFUSE_AFTER_MS: '10000' } as const;

describe.concurrent('etcd is out of reach for one worker', () => {
  test('with the default lease, calls of 2 s stop nothing, silence stops a worker 15 s after the last keep-alive, and it resumes', async ({
    annotate,
    expect,
  }) => {
    // By default a reservation ends together with the authority if heartbeats are punctual; on a busy machine it would
    // end before.
    await using scene = await Scene.open({ env: { RESERVATION_MS: '29000', LEASE_MARGIN_MS: '1000' } });
    const link = await scene.link();
    const worker = scene.worker(link.env);
    await worker.ready();
    const fence = worker.lines.find(({ msg }) => msg === 'worker ID acquired')?.fence;
    const history = await scene.underLoad(async () => {
      link.slow(SLOW_MS);
      const slowFromMs = performance.now();
      // The time of two deadlines passes; keep-alives that take 2 s renew each.
      await expect.poll(() => link.lastKeepAliveMs(), { timeout: 60_000 }).toBeGreaterThan(slowFromMs + REAL_REFUSE_MS);
      const from = worker.lines.length;
      const warnings = worker.lines.filter(({ level = 0 }) => level >= WARN).map((line) => JSON.stringify(line));
      expect(worker.gate(), warnings.join('\n')).toBe('open');
      link.silence();
      const lastMs = link.lastKeepAliveMs();
      const { seenMs, reason, detail } = await closed(worker, from);
      expect(reason).toBe('LEASE_SUSPENDED');
      await report(
        annotate,
        `30/10/15: ${Math.round(seenMs - lastMs)} ms from the last keep-alive to the stop; ${detail}`,
      );
      // Not earlier, and a busy machine only delays it.
      expect(Number(/for (\d+) ms/.exec(String(detail))?.[1])).toBeGreaterThanOrEqual(REAL_REFUSE_MS);
      const healedMs = performance.now();
      link.heal();
      const open = await opened(worker, from);
      const repliedMs = await nextReplyBy(worker, scene.replies);
      await report(
        annotate,
        `default timing: gate open after ${Math.round(open.seenMs - healedMs)} ms, first reply after ${Math.round(repliedMs - healedMs)} ms`,
      );
    }, 200);
    expect(history.stops).toBeGreaterThanOrEqual(1);
    expect(worker.lines.filter(({ msg }) => msg === 'worker ID acquired').map((line) => line.fence)).toEqual([fence]);
  });

  test('a gate that opens again serves the waiting requests, and the worker need not join the group again', async ({
    annotate,
    expect,
  }) => {
    await using scene = await Scene.open({ partitions: PARTITIONS, env: { ...KEPT_LEASE, GATE_GRACE_MS: '60000' } });
    const link = await scene.link();
    const worker = scene.worker(link.env);
    await worker.ready();
    await scene.underLoad(async () => {
      for (let times = 0; times < REOPENINGS; times += 1) {
        await nextReplyBy(worker, scene.replies);
        const from = worker.lines.length;
        link.cut();
        await closed(worker, from);
        link.heal();
        await opened(worker, from);
      }
      await nextReplyBy(worker, scene.replies);
    });
    expect(worker.lines.filter(({ msg }) => msg === 'joined the request group')).toHaveLength(1);
    const tookMs = reopeningsMs(worker, scene.replies).toSorted((a, b) => a - b);
    await report(annotate, `gate open to next batch, by the worker's own clock: ${tookMs.join(', ')} ms`);
    expect(tookMs.length).toBeGreaterThanOrEqual(REOPENINGS);
  });

  test('a worker frozen past its deadline and resumed without etcd allocates nothing until etcd has confirmed its term', async ({
    annotate,
    expect,
  }) => {
    await using scene = await Scene.open({ env: KEPT_LEASE });
    const link = await scene.link();
    const worker = scene.worker(link.env);
    await worker.ready();
    // More IDs than a worker can allocate at once: when it freezes, an allocation is waiting for its ticks.
    const asks = Array.from({ length: 400 }, (_, i) => ({ correlationId: `big-${i}`, count: 100_000 }));
    await scene.realm.send(asks);
    await scene.replies.until('the first of them', (seen) => seen.length > 10);
    await expect.poll(() => link.lastKeepAliveMs()).toBeGreaterThan(0);
    const from = worker.lines.length;
    worker.kill('SIGSTOP');
    link.silence();
    await expect.poll(() => performance.now() - link.lastKeepAliveMs()).toBeGreaterThan(REFUSE_MS + 100);
    const wokenMs = Date.now();
    worker.kill('SIGCONT');
    const { reason } = await closed(worker, from);
    const healedMs = Date.now();
    link.heal();
    await opened(worker, from);
    const answered = await scene.replies.replies(asks.length);
    const batches = [...answered.values()].flatMap(([first]) =>
      first && 'batch' in first.reply ? [first.reply.batch] : [],
    );
    expect(batches).toHaveLength(asks.length);
    expect(batches.filter(({ generatedAtMs: ms }) => ms > wokenMs && ms < healedMs)).toEqual([]);
    expect(batches.filter(({ generatedAtMs: ms }) => ms <= wokenMs).length).toBeGreaterThan(0);
    await report(annotate, `frozen past the deadline: ${reason}, ${healedMs - wokenMs} ms awake without an ID`);
  });
});

describe.concurrent('a worker loses its worker ID when', () => {
  test.for([
    ['the lease is revoked', 'revoked'],
    ['the owner key is deleted', 'deleted'],
    ['another process writes the owner key', 'replaced'],
  ] as const)(
    '%s: it notices, allocates nothing after that, and starts a new term',
    async ([, how], { annotate, expect }) => {
      await using scene = await Scene.open({ env: { ...PATIENT, WORKER_ID: '7' } });
      const { realm, replies } = scene;
      const link = await scene.link();
      const worker = scene.worker(link.env);
      await worker.ready();
      const history = await scene.underLoad(async () => {
        await nextReplyBy(worker, replies);
        const [from, owner, key] = [worker.lines.length, await realm.owner(7), realm.keys.owner(7)];
        const takenMs = performance.now();
        if (how === 'revoked') await realm.etcd.revokeLease(owner?.leaseId ?? 0n);
        else if (how === 'deleted') await realm.etcd.transact([], [{ delete: key }]);
        else {
          link.silence(); // in one transaction etcd takes one change of a key; between two the worker could acquire its ID again
          await realm.etcd.transact([], [{ delete: key }]);
          await realm.etcd.transact([], [{ put: key, value: owner?.value ?? Buffer.alloc(0) }]);
          link.heal();
        }
        const stop = await closed(worker, from);
        expect(stop.reason).toBe('LEASE_LOST');
        if (how === 'replaced') {
          await worker.line(({ reason }) => reason === 'POOL_EXHAUSTED', from);
          await realm.etcd.transact([], [{ delete: key }]);
        }
        const open = await opened(worker, from);
        await nextReplyBy(worker, replies);
        await report(
          annotate,
          `${how}: noticed after ${Math.round(stop.seenMs - takenMs)} ms, open after ${Math.round(open.seenMs - takenMs)} ms`,
        );
      });
      expect(history.stops).toBe(1);
      expect(worker.lines.filter(({ msg }) => msg === 'worker ID acquired')).toHaveLength(2);
    },
  );
});
