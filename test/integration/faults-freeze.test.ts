import { expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { pythonEnvironment, runPython } from '../support/example-tools.ts';
import type { Followed } from '../support/followed.ts';
import { Load } from '../support/load.ts';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { takenOver } from '../support/takeover.ts';
import { checkWholeHistory, report, settledRecords } from '../support/whole-history.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 6;
const ANSWERED_BEFORE = 300;
const ANSWERED_BY_SUCCESSOR = 300;

/** Freezes the victim until the other has taken over, and resumes it with its work in flight. */
async function freeze(victim: WorkerProcess, successor: WorkerProcess, replies: Followed): Promise<number> {
  const partitions = new Set(victim.partitions());
  victim.kill('SIGSTOP');
  try {
    return await takenOver({ partitions, successor, replies, atLeast: ANSWERED_BY_SUCCESSOR });
  } finally {
    victim.kill('SIGCONT');
  }
}

/** Checks the same history with the Python example, if Python is available. */
async function checkByPython(realm: Realm, replies: Followed, requests: number): Promise<string> {
  const tool = await pythonEnvironment();
  if ('unavailable' in tool) return `not checked with Python: ${tool.unavailable}`;
  const args = ['--ids', '--ledger-topic', realm.ledgerTopic, realm.replyTopic];
  const { stdout } = await runPython(tool.path, 'ledger.py', suiteServers().brokers, args);
  const { decided, ...found } = JSON.parse(stdout);
  const replied = [...(await replies.replies(requests))].map(([correlationId, [first]]) => {
    if (first === undefined || !('batch' in first.reply)) throw new Error(`no batch for ${correlationId}`);
    return [correlationId, expandIds(first.reply.batch).map(String)] as const;
  });
  expect(decided).toEqual(Object.fromEntries(replied));
  expect(found).toMatchObject({ faults: [], replies: replies.seen.length });
  return `checked with Python: ${JSON.stringify(found)}`;
}

test('each request gets one batch when each of two workers is frozen until the other has taken over, and resumes its work', async ({
  annotate,
}) => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS, env: SHORT_SESSION });
  const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
  const [first, second] = [realm.worker(), realm.worker()];
  const shared = () => Promise.all([first, second].map((worker) => worker.hasPartitions(PARTITIONS / 2)));
  await shared();

  const load = new Load(realm, { partitions: PARTITIONS });
  try {
    await replies.replies(ANSWERED_BEFORE);
    for (const [victim, successor] of [
      [first, second],
      [second, first],
    ] as const) {
      const takeoverMs = await freeze(victim, successor, replies);
      await report(annotate, `${takeoverMs} ms from SIGSTOP to the successor's first reply`);
      await shared(); // the worker that was frozen is in the group again
    }
  } finally {
    await load.stop();
  }
  const history = await checkWholeHistory(realm, load.requests, replies, () =>
    settledRecords(realm, realm.ledgerTopic, ledger),
  );
  await report(annotate, `frozen twice: ${JSON.stringify(history)}`);
  await report(annotate, await checkByPython(realm, replies, history.requests));
  for (const worker of [first, second]) expect(worker.gate()).toBe('open');
});
