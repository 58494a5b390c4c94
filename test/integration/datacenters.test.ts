import { afterAll, beforeAll, expect, test } from 'vitest';
import { decode } from '../../src/client/index.ts';
import { type Env, Page } from '../support/page.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

const page = new Page('how-to/pair-of-topics.md', here);
/** A datacenter ID other than the realm's. */
const OTHER_DATACENTER = 1;

let realm: Realm;

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  await realm.worker().ready();
});

afterAll(() => realm?.[Symbol.asyncDispose]());

/** The page's commands with the names of this realm. */
function here(text: string): string {
  return text.replaceAll(/\bid\./g, `${realm.groupId}.`).replaceAll('idalloc.dc1', `${realm.groupId}.dc1`);
}

/** The first column of the table that `idalloc request` prints. */
function idsIn(printed: string): bigint[] {
  return [...printed.matchAll(/^ *(\d{15,19}) /gm)].map(([, id = '']) => BigInt(id));
}

test('a second datacenter on the same servers is served beside the first, and its IDs differ in the datacenter field', async () => {
  const second: Env = { ...realm.env, ...page.exported((command) => command.includes('dc1')) };
  expect(second.DATACENTER_ID).toBe(String(OTHER_DATACENTER));
  expect(realm.env.DATACENTER_ID).not.toBe(second.DATACENTER_ID);
  expect(await page.run('idalloc topics init', second)).toContain(`created ${second.REQUEST_TOPIC}`);
  await realm.worker(second).ready();
  const first = await runIdalloc(['request', '--count', '3'], realm.env);
  const answer = await page.run('idalloc request --count 3 --correlation-id pair-check', second);
  const [own, others] = [idsIn(first.stdout), idsIn(answer)];
  expect([own.length, others.length]).toEqual([3, 3]);
  expect(new Set(others.map((id) => decode(id).datacenterId))).toEqual(new Set([OTHER_DATACENTER]));
  expect(own.filter((id) => others.includes(id))).toEqual([]);
  expect(await page.run('idalloc audit --ledger-topic id.ledger', second)).toContain('no problems found');
});
