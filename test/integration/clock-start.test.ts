import { expect, test } from 'vitest';
import {
  expectEjected,
  expectNoCeilingInTheFuture,
  firstReplyAfter,
  gateSays,
  gateSince,
  lastFence,
} from '../support/clock-fault.ts';
import { FakedClock } from '../support/faked-clock.ts';
import { Load } from '../support/load.ts';
import { KEPT_LEASE, Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { checkWholeHistory, report, settledRecords } from '../support/whole-history.ts';

const HOUR = 3_600_000;
const YEAR = 365 * 24 * HOUR;
/** A pool of one worker ID, so that no other has a ceiling behind the clock. */
const ONE_ID = { POOL_FIRST: '0', POOL_LAST: '0' };

const STARTS = [
  ['a year ahead of the brokers', YEAR, 'CLOCK_AHEAD', {}],
  ['an hour behind the brokers, with unused worker IDs whose ceilings are lower still', -HOUR, 'CLOCK_BEHIND', {}],
  ['an hour behind all ceilings', -HOUR, 'ALL_CEILINGS_AHEAD', ONE_ID],
] as const;

test.for(STARTS)(
  'a worker that starts %s claims nothing until its clock is right',
  async ([name, offsetMs, reason, pool], context) => {
    using clock = await FakedClock.create(context, offsetMs);
    await using realm = await Realm.create(suiteServers(), { env: { ...KEPT_LEASE, ...pool } });
    const replies = await realm.follow();
    const before = realm.worker();
    await before.ready();
    await realm.send([{ correlationId: 'before', count: 100 }]);
    await replies.reply('before');
    await before.stop();

    const worker = realm.worker(clock.env);
    await gateSays(worker, reason, 0);
    await realm.send([{ correlationId: 'meanwhile', count: 100 }]);
    await expectEjected({ realm, worker, replies }, reason);
    await expectNoCeilingInTheFuture(realm);
    expect(replies.seen).toHaveLength(1);

    const fence = lastFence(replies);
    const healedMs = performance.now();
    clock.set(0);
    const openMs = (await gateSays(worker, 'open', 0)) - healedMs;
    const repliedMs = (await firstReplyAfter(fence, replies, 1)) - healedMs;
    await expectNoCeilingInTheFuture(realm);
    await report(
      context.annotate,
      `start ${name}: gate open ${Math.round(openMs)} ms, first reply ${Math.round(repliedMs)} ms after it was set right`,
    );
  },
);

/**
 * Off at the start by a tolerated amount, and then too fast by 16 % or too slow by 4 %. The machine's monotonic clock
 * does not show this: where NTP slews one clock, it slews the other as well.
 */
const DRIFTS = [
  ['slow', -450, -2, 'CLOCK_BEHIND'],
  ['fast', 450, 8, 'CLOCK_AHEAD'],
] as const;
const DRIFT_EACH_MS = 50;

test.for(DRIFTS)(
  "a clock that runs too %s is noticed by the brokers' clocks",
  async ([name, atFirstMs, stepMs, then], context) => {
    using clock = await FakedClock.create(context, atFirstMs);
    const partitions = 3;
    await using realm = await Realm.create(suiteServers(), { partitions, env: KEPT_LEASE });
    const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
    const worker = realm.worker(clock.env);
    await worker.ready();
    const load = new Load(realm, { partitions, burst: 6 });
    let drifting: NodeJS.Timeout | undefined;
    try {
      await replies.replies(100);
      let offsetMs: number = atFirstMs;
      drifting = setInterval(() => {
        offsetMs += stepMs;
        clock.set(offsetMs);
      }, DRIFT_EACH_MS);
      const fence = lastFence(replies);
      const from = worker.lines.length;
      await gateSays(worker, 'CLOCK_DRIFT', from);
      const detail = worker.lines.findLast(({ reason }) => reason === 'CLOCK_DRIFT')?.detail;
      await gateSays(worker, then, from);
      await expectEjected({ realm, worker, replies }, then);
      const at = replies.seen.length;
      const healedMs = performance.now();
      clearInterval(drifting);
      clock.set(0);
      const openMs = (await gateSays(worker, 'open', from)) - healedMs;
      const repliedMs = (await firstReplyAfter(fence, replies, at)) - healedMs;
      expect(gateSince(worker, from).slice(0, 2)).toEqual(['CLOCK_DRIFT', then]);
      await report(
        context.annotate,
        `clock too ${name}: closed when "${detail}"; gate open ${Math.round(openMs)} ms, first reply ${Math.round(repliedMs)} ms after it was set right`,
      );
    } finally {
      clearInterval(drifting);
      await load.stop();
    }
    await checkWholeHistory(realm, load.requests, replies, () => settledRecords(realm, realm.ledgerTopic, ledger));
  },
);
