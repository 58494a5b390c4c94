import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ownServers } from '../support/own-servers.ts';
import { Realm } from '../support/realm.ts';

const ERROR_LEVEL = 50;
/**
 * Connections of a worker to one broker, one for each lane: control, append, publish, requests, ledger, group, entries.
 */
const CONNECTIONS_PER_BROKER = 7;

const servers = await ownServers({ kafka: true });

/** The number of open TCP connections of a process to a port, from Linux' connection tables. */
function connectionsTo(pid: number, port: number): number {
  const inodes = new Set(
    readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      const [, inode] = /^socket:\[(\d+)\]$/.exec(linkOf(`/proc/${pid}/fd/${fd}`)) ?? [];
      return inode ?? [];
    }),
  );
  const hexPort = port.toString(16).toUpperCase().padStart(4, '0');
  const rows = ['tcp', 'tcp6'].flatMap((table) =>
    readFileSync(`/proc/${pid}/net/${table}`, 'utf8').split('\n').slice(1),
  );
  return rows.filter((row) => {
    const [, , remote, state, , , , , , inode] = row.trim().split(/\s+/);
    return state === '01' && remote?.endsWith(`:${hexPort}`) && inodes.has(inode ?? '');
  }).length;
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return ''; // closed since it was listed
  }
}

test('a serving worker has at most one connection per lane and broker, prints no warnings, and logs no errors when the broker restarts', async () => {
  const port = Number(servers.brokers[0]?.split(':').at(-1));
  await using realm = await Realm.create(servers);
  const worker = realm.worker();
  const pid = Number((await worker.ready()).pid);
  // Replies are counted at the brokers: a consumer of the test would have to recover from the restart as well.
  const ask = async (id: string, nth: number) => {
    await realm.send([{ correlationId: id, count: 1 }]);
    await realm.send([{ correlationId: `${id}-unheard`, count: 1, replyTopic: `${realm.replyTopic}.none` }]);
    const answered = async () =>
      Math.min(await realm.records(realm.replyTopic), await realm.records(realm.deadLetterTopic));
    await expect.poll(answered).toBeGreaterThanOrEqual(nth);
  };
  await ask('before', 1);
  expect(connectionsTo(pid, port)).toBeLessThanOrEqual(CONNECTIONS_PER_BROKER);

  await servers.restartKafka();
  await ask('after', 2);
  expect(connectionsTo(pid, port)).toBeLessThanOrEqual(CONNECTIONS_PER_BROKER);
  expect(worker.lines.filter(({ level }) => Number(level) >= ERROR_LEVEL)).toEqual([]);
  await worker.stop();
  expect(worker.errors).toBe('');
});
