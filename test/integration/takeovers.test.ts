import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Fleet, PARTITIONS, WORKERS } from '../support/fleet.ts';
import { longestOf, longestWaits } from '../support/longest-wait.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';

/** A session longer than the start of a process on any machine. */
const LONG_SESSION = { KAFKA_SESSION_TIMEOUT_MS: '60000' };

test('a worker that is killed and restarted immediately gets its partitions back without a rebalance', async ({
  annotate,
}) => {
  await using fleet = await Fleet.of(LONG_SESSION);
  const [dead, ...others] = fleet.workers;
  const own = [...(dead?.partitions() ?? [])].sort();
  const rebalances = () =>
    others.map(({ lines }) => lines.filter(({ msg }) => msg === 'joined the request group').length);
  const before = rebalances();
  const killedMs = performance.now();
  dead?.kill('SIGKILL');
  await dead?.exit;
  const again = fleet.replace(0);
  await again.ready();
  expect([...again.partitions()].sort()).toEqual(own);
  await fleet.answered();
  const asks = await fleet.load.stop();
  await fleet.replies.replies(asks.length);
  const waits = longestWaits(asks, fleet.replies, killedMs - 1_000);
  const kept = [...waits.keys()].filter((partition) => !own.includes(partition));
  await report(
    annotate,
    `kill -9 and restart at once: its partitions waited at most ${longestOf(waits, own)} ms, the others ${longestOf(waits, kept)} ms`,
  );
  expect(rebalances()).toEqual(before);
});

test('no partition waits for a session to expire in ten rolling restarts', async ({ annotate }) => {
  // With a long session, a worker that a busy machine holds up stays a member, and one that does not leave as well.
  await using fleet = await Fleet.of(LONG_SESSION);
  const begunMs = performance.now();
  let moved = 0;
  const owners = () => new Map(fleet.workers.flatMap((worker, i) => worker.partitions().map((at) => [at, i] as const)));
  for (let restart = 0; restart < 10; restart += 1) {
    const i = restart % WORKERS;
    const before = owners();
    await fleet.workers[i]?.stop();
    // It has left the group: nothing waits for its session to expire.
    const { groups } = await fleet.realm.admin.describeGroups([fleet.realm.groupId]);
    expect(groups[0]?.members).toHaveLength(WORKERS - 1);
    fleet.replace(i);
    await fleet.shared();
    const after = owners();
    moved += [...before].filter(([partition, owner]) => after.get(partition) !== owner).length;
  }
  await fleet.answered();
  const asks = await fleet.load.stop();
  await fleet.replies.replies(asks.length);
  const longestMs = longestOf(longestWaits(asks, fleet.replies, begunMs - 1_000));
  await report(
    annotate,
    `ten rolling restarts of ${WORKERS} workers: no request waited longer than ${longestMs} ms; ${moved} of ${10 * PARTITIONS} partitions had another owner afterwards`,
  );
});

test('a worker that is killed, and restarted with the same INSTANCE_ID on an empty directory, is the same member', async () => {
  await using realm = await Realm.create(suiteServers(), { env: LONG_SESSION });
  const start = () => realm.worker({ INSTANCE_ID: 'ids.idalloc-0' });
  const first = start();
  await first.ready();
  const own = [...first.partitions()].sort();
  first.kill('SIGKILL');
  await first.exit;
  const again = start();
  await again.ready();
  expect([...again.partitions()].sort()).toEqual(own);
  const { groups } = await realm.admin.describeGroups([realm.groupId]);
  expect(groups[0]?.members).toHaveLength(1);
});

test('of two processes with one instance ID, the fenced one logs that and exits', async () => {
  await using realm = await Realm.create(suiteServers());
  const first = realm.worker();
  await first.ready();
  const copy = mkdtempSync(join(tmpdir(), 'idalloc-copy-'));
  try {
    copyFileSync(join(first.indexDir, 'instance-id'), join(copy, 'instance-id'));
    const second = realm.worker({ INDEX_DIR: copy });
    expect((await first.ended()).code).toBe(1);
    expect(first.lines.find(({ level }) => level === 60)?.msg).toMatch(/^INSTANCE_FENCED: .*INDEX_DIR/);
    await second.ready();
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
});
