import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, expect, type TestContext, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { decompose, tickStartMs } from '../../src/core/layout.ts';
import {
  expectEjected,
  expectNoCeilingInTheFuture,
  expectReleased,
  expectUndisturbed,
  firstReplyAfter,
  gateChanges,
  gateSays,
  gateSince,
  lastFence,
  termsOf,
  type Watched,
} from '../support/clock-fault.ts';
import { FakedClock } from '../support/faked-clock.ts';
import { decodeReply, type Followed } from '../support/followed.ts';
import { Load } from '../support/load.ts';
import { LAYOUT, Realm, STEADY_LEASE } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { checkWholeHistory, report, settledRecords } from '../support/whole-history.ts';

const PARTITIONS = 3;
const HOUR = 3_600_000;
const YEAR = 365 * 24 * HOUR;
/** How long the clock jumps back and forth. A longer time would show nothing more. */
const STROBE_MS = Number(process.env.IDALLOC_STROBE_MS ?? 3_000);
const STROBE_EACH_MS = 100;
const STOPPED_MS = 5_000;
/** The most by which an ID's time may be ahead of the brokers' clock: what the clock guard tolerates. */
const MAX_LEAD_MS = 1_000;
const MAX_LAG_MS = 5_000;

interface Stage extends Watched {
  readonly clock: FakedClock;
  readonly load: Load;
  readonly ledger: Followed;
  /** The pid of the worker, which must not change. */
  readonly pid: unknown;
}

const stack = new AsyncDisposableStack();
let shared: Promise<Stage> | undefined;

/** One worker for all cases, so that each case shows that it recovered from the earlier ones by itself. */
function stage(context: TestContext): Promise<Stage> {
  shared ??= start(context);
  return shared;
}

async function start(context: TestContext): Promise<Stage> {
  const clock = stack.use(await FakedClock.create(context));
  const realm = stack.use(await Realm.create(suiteServers(), { partitions: PARTITIONS, env: STEADY_LEASE }));
  const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
  const worker = realm.worker(clock.env);
  const { pid } = await worker.ready();
  const load = new Load(realm, { partitions: PARTITIONS, burst: 6 });
  stack.defer(async () => void (await load.stop()));
  await replies.replies(100);
  return { clock, realm, worker, replies, ledger, load, pid };
}

afterAll(() => stack.disposeAsync());

/**
 * Sets the clock right, and waits until the worker serves. It compares its clocks before each allocation, so the gate
 * has shown any effect of setting the clock right when a request that was sent afterwards has its batch.
 */
async function calm({ clock, worker, replies, load }: Stage): Promise<number> {
  clock.set(0);
  const setMs = performance.now();
  await replies.until('a reply to a later request', (seen) => {
    const later = new Set(load.requests.filter(({ sentMs }) => sentMs > setMs).map((ask) => ask.correlationId));
    return seen.some(({ message, atMs }) => atMs > setMs && later.has(String(message.key)));
  });
  await expect.poll(() => worker.gate()).toBe('open');
  return worker.lines.length;
}

/** Waits until the worker serves again; returns how long after `sinceMs` the gate opened and the first reply came. */
async function comesBack(on: Stage, fence: bigint, from: number, sinceMs: number): Promise<string> {
  const at = on.replies.seen.length;
  const opened = (await gateSays(on.worker, 'open', from)) - sinceMs;
  const replied = (await firstReplyAfter(fence, on.replies, at)) - sinceMs;
  const ready = on.worker.lines.filter(({ msg }) => msg === 'idalloc ready');
  expect(ready.map(({ pid }) => pid)).toEqual([on.pid]);
  await expectNoCeilingInTheFuture(on.realm);
  return `gate open ${Math.round(opened)} ms, first reply ${Math.round(replied)} ms`;
}

test.for([-1, -8, 500])('a step of the clock by %i ms disturbs nothing', async (offsetMs, context) => {
  const on = await stage(context);
  const from = await calm(on);
  on.clock.set(offsetMs);
  await expectUndisturbed(on, from);
});

test.for([-12, -50])(
  'after a step of the clock by %i ms the worker releases its worker ID and acquires another',
  async (offsetMs, context) => {
    const on = await stage(context);
    const from = await calm(on);
    const fence = lastFence(on.replies);
    const terms = await termsOf(on.realm);
    expect(terms).toHaveLength(1);
    const beganMs = performance.now();
    on.clock.set(offsetMs);
    const closedMs = (await gateSays(on.worker, 'CLOCK_BACKWARD', from)) - beganMs;
    await expectReleased(on.realm, terms);
    const closings = gateSince(on.worker, 0).filter((reason) => reason === 'CLOCK_BACKWARD');
    expect(await gateChanges(on.worker, 'CLOCK_BACKWARD')).toBe(closings.length);
    const back = await comesBack(on, fence, from, beganMs);
    expect(gateSince(on.worker, from)).toEqual(['CLOCK_BACKWARD', 'open']);
    await report(
      context.annotate,
      `step of ${offsetMs} ms: closed after ${Math.round(closedMs)} ms, ${back} after the step`,
    );
  },
);

/** Faults of the clock that last until the test sets it right. */
const LASTING = [
  ['a step of -1 h', -HOUR, 'CLOCK_BACKWARD', 'CLOCK_BEHIND'],
  ['a step of +2 s', 2_000, 'CLOCK_FORWARD', 'CLOCK_AHEAD'],
  ['a step of +1 h', HOUR, 'CLOCK_FORWARD', 'CLOCK_AHEAD'],
  ['a step of +1 y', YEAR, 'CLOCK_FORWARD', 'CLOCK_AHEAD'],
] as const;

test.for(LASTING)(
  'after %s nothing is served until the clock is right',
  async ([name, offsetMs, at, then], context) => {
    const on = await stage(context);
    const from = await calm(on);
    const fence = lastFence(on.replies);
    const beganMs = performance.now();
    on.clock.set(offsetMs);
    const closedMs = (await gateSays(on.worker, at, from)) - beganMs;
    await gateSays(on.worker, then, from);
    await expectEjected(on, then);
    await expectNoCeilingInTheFuture(on.realm);

    const healedMs = performance.now();
    on.clock.set(0);
    const back = await comesBack(on, fence, from, healedMs);
    // The response to an append that was in flight shows the step as drift.
    const reasons = gateSince(on.worker, from).filter((reason) => reason !== 'CLOCK_DRIFT');
    expect(reasons.slice(0, 2)).toEqual([at, then]);
    await report(context.annotate, `${name}: closed after ${Math.round(closedMs)} ms; ${back} after it was set right`);
  },
);

test('while the clock jumps back and forth by 100 ms nothing is served', async (context) => {
  const on = await stage(context);
  const from = await calm(on);
  const fence = lastFence(on.replies);
  let offsetMs = 0;
  const strobe = setInterval(() => {
    offsetMs = offsetMs === 0 ? -100 : 0;
    on.clock.set(offsetMs);
  }, STROBE_EACH_MS);
  try {
    await pause(STROBE_MS);
    await expectEjected(on, 'CLOCK_BACKWARD');
    expect(gateSince(on.worker, from)).toEqual(['CLOCK_BACKWARD']);
  } finally {
    clearInterval(strobe);
  }
  const healedMs = performance.now();
  on.clock.set(0);
  const back = await comesBack(on, fence, from, healedMs);
  await report(context.annotate, `strobe of ${STROBE_MS} ms: ${back} after its end`);
});

test('while the clock stands still nothing is served', async (context) => {
  const on = await stage(context);
  const from = await calm(on);
  const fence = lastFence(on.replies);
  await on.clock.freeze();
  const beganMs = performance.now();
  const closedMs = (await gateSays(on.worker, 'CLOCK_FROZEN', from)) - beganMs;
  await expectEjected(on, 'CLOCK_FROZEN');
  await pause(STOPPED_MS);
  expect(on.worker.gate()).toBe('CLOCK_FROZEN');
  const healedMs = performance.now();
  on.clock.set(0);
  const back = await comesBack(on, fence, from, healedMs);
  await report(context.annotate, `frozen clock: closed after ${Math.round(closedMs)} ms; ${back} after it went on`);
});

test('a process that was stopped asks etcd first, and continues under the same identity', async (context) => {
  const on = await stage(context);
  const from = await calm(on);
  const fence = lastFence(on.replies);
  on.worker.kill('SIGSTOP');
  await pause(1_500); // below the own deadline, which would stop it as well
  const wokenMs = performance.now();
  on.worker.kill('SIGCONT');
  const closedMs = (await gateSays(on.worker, 'PROCESS_PAUSED', from)) - wokenMs;
  const openMs = (await gateSays(on.worker, 'open', from)) - wokenMs;
  const count = on.replies.seen.length;
  await on.replies.until('a reply after the stop', (seen) => seen.length > count);
  expect(gateSince(on.worker, from)).toEqual([]);
  expect(lastFence(on.replies)).toBe(fence);
  await report(
    context.annotate,
    `SIGSTOP for 1.5 s: closed ${Math.round(closedMs)} ms, open ${Math.round(openMs)} ms after SIGCONT`,
  );
});

test('in all these cases no ID was allocated twice, and none was far from the time of its entry', async (context) => {
  const on = await stage(context);
  await calm(on);
  const asks = await on.load.stop();
  const history = await checkWholeHistory(on.realm, asks, on.replies, () =>
    settledRecords(on.realm, on.realm.ledgerTopic, on.ledger),
  );
  const leads = on.replies.seen.flatMap((seen) => {
    const { reply } = decodeReply(seen);
    if (!('batch' in reply)) return [];
    const appendedMs = Number(seen.message.timestamp); // a reply has its entry's time
    return expandIds(reply.batch).map((id) => tickStartMs(LAYOUT, decompose(LAYOUT, id).ticks) - appendedMs);
  });
  const [lowest, highest] = leads.reduce(([low, high], lead) => [Math.min(low, lead), Math.max(high, lead)], [0, 0]);
  expect(highest).toBeLessThanOrEqual(MAX_LEAD_MS);
  expect(lowest).toBeGreaterThan(-MAX_LAG_MS);
  await report(context.annotate, `IDs are ${lowest} to ${highest} ms from their entries: ${JSON.stringify(history)}`);
});
