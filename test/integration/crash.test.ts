import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { type DecodedReply, decodeReply, type Followed, type Seen } from '../support/followed.ts';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const PARTITIONS = 6;
const BURST = 20;
/** Pause between two bursts, for some hundred requests a second. */
const PACE_MS = 25;
const ANSWERED_BEFORE = 1_000;

/** An endless stream of requests to each partition in turn; a correlation ID names its partition. */
class Load {
  readonly #realm: Realm;
  readonly #ended: Promise<void>;
  #stopping = false;
  sent = 0;

  constructor(realm: Realm) {
    this.#realm = realm;
    this.#ended = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#ended;
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      const asks = Array.from({ length: BURST }, (_, i) => {
        const partition = (this.sent + i) % PARTITIONS;
        return { correlationId: `p${partition}-${this.sent + i}`, count: 1 + (i % 5), partition };
      });
      await this.#realm.send(asks);
      this.sent += BURST;
      await pause(PACE_MS);
    }
  }
}

function partitionOf({ message }: Seen): number {
  return Number(/^p(\d+)-/.exec(String(message.key))?.[1]);
}

/** Kills the victim; returns how long its partitions were without a reply. */
async function crash(victim: WorkerProcess, successor: WorkerProcess, replies: Followed): Promise<number> {
  const orphans = new Set(victim.partitions());
  const { workerId } = await successor.ready();
  victim.kill('SIGKILL');
  const killedMs = performance.now();
  expect(await victim.ended()).toMatchObject({ signal: 'SIGKILL' });
  let at = replies.seen.length;
  let firstMs: number | undefined;
  await replies.until('a reply by the successor', (seen) => {
    for (; at < seen.length && firstMs === undefined; at += 1) {
      const one = seen[at];
      if (one === undefined || !orphans.has(partitionOf(one))) continue;
      const { reply, replayed } = decodeReply(one);
      const bySuccessor = replayed || ('batch' in reply && reply.batch.workerId === workerId);
      if (bySuccessor) firstMs = one.atMs;
    }
    return firstMs !== undefined;
  });
  return (firstMs ?? Number.NaN) - killedMs;
}

/** Expects one batch for each correlation ID, however many replies it has, and no ID in two batches. */
function checkDecidedOnce(answered: ReadonlyMap<string, readonly DecodedReply[]>): void {
  const ids: bigint[] = [];
  for (const [correlationId, replies] of answered) {
    const values = new Set(replies.map(({ seen }) => seen.message.value?.toString('hex')));
    expect(values.size, `different batches for ${correlationId}`).toBe(1);
    const [first] = replies;
    if (first === undefined || !('batch' in first.reply)) throw new Error(`no batch for ${correlationId}`);
    ids.push(...expandIds(first.reply.batch));
  }
  expect(new Set(ids).size).toBe(ids.length);
}

test('kill -9 of one of two workers under load: every request gets one batch, and all IDs differ', async ({
  annotate,
}) => {
  await using realm = await Realm.create(suiteServers(), {
    partitions: PARTITIONS,
    // The sooner offsets are committed, the more likely the test detects a commit before its reply.
    env: { ...SHORT_SESSION, COMMIT_INTERVAL_MS: '10' },
  });
  const replies = await realm.follow();
  const [victim, successor] = [realm.worker(), realm.worker()];
  await Promise.all([victim, successor].map((worker) => worker.hasPartitions(PARTITIONS / 2)));

  const load = new Load(realm);
  try {
    await replies.replies(ANSWERED_BEFORE);
    const takeoverMs = await crash(victim, successor, replies);
    await annotate(`${Math.round(takeoverMs)} ms from kill -9 to the successor's first reply`);
    process.stderr.write(`crash: ${Math.round(takeoverMs)} ms from kill -9 to the successor's first reply\n`);
  } finally {
    await load.stop();
  }
  checkDecidedOnce(await replies.replies(load.sent));
  expect(successor.partitions()).toHaveLength(PARTITIONS);
});
