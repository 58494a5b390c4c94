import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { wholePartition } from '../../src/adapters/kafka/topics/spans.ts';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { FORGOTTEN } from '../support/documents.ts';
import { idFor } from '../support/home.ts';
import { loseTail } from '../support/lost-tail.ts';
import { mirrorTopics, recordsOf } from '../support/mirror.ts';
import { type ProcessServers, startProcessServers } from '../support/process-servers.ts';
import type { TestRequest } from '../support/realm.ts';
import { type SuiteServers, suiteServers } from '../support/servers.ts';
import { PARTITIONS, Site } from '../support/site.ts';
import { whyNoProcesses } from '../support/why-no-processes.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

/**
 * What was given out is remembered twice: by the ledger, and by etcd. Each test takes one of the memories from whole
 * workers, on two clusters of Kafka where it matters. What a power failure takes from a worker's own disk is in
 * test/adapters/index/power-failure.
 */
/** A sequence in the first partition and one in the second. */
const [INVOICES, TICKETS] = [idFor('invoices', 0, PARTITIONS), idFor('tickets', 1, PARTITIONS)];
const SEQUENCES = [INVOICES, TICKETS];
const documentOf = (sequence: string, nth: number) => `${sequence}-document-${nth}`;
/** IDs are asked for in the third. */
const idsOf = (nth: number) => idFor(`ids-${nth}`, 2, PARTITIONS);
const noServers = whyNoProcesses('kafka', 'etcd');

let second: ProcessServers;

beforeAll(async () => {
  const parts = { kafka: true, etcdMembers: 0 };
  if (noServers === undefined) second = await startProcessServers(() => undefined, parts);
});

afterAll(() => second?.stop());

/**
 * A site that was served and is gone: of each sequence documents 1 to 5 have their numbers, and `ids` 1 to 4 their IDs.
 */
async function goneSite(servers: SuiteServers, isKilled = false) {
  const site = await Site.open(servers);
  for (const name of SEQUENCES) expect(await site.command('sequence', 'create', name)).toMatchObject({ code: 0 });
  for (const nth of [0, 1]) site.start(nth);
  const ids: unknown[] = [];
  for (const nth of [1, 2, 3, 4]) ids.push(await site.asked({ correlationId: idsOf(nth), count: 1 }));
  for (const sequence of SEQUENCES) {
    for (const nth of [1, 2, 3, 4, 5]) expect(await site.asked(documentRequest(sequence, nth))).toBe(nth);
  }
  await site.remembered();
  await (isKilled ? site.die() : Promise.all(site.workers.map((worker) => worker.stop())));
  return { site, ids, goneMs: Date.now() };
}

/** A worker takes all partitions over and states in each how far its requests went; then it stops. */
async function takenOver(site: Site): Promise<void> {
  const taking = site.start(2);
  const lasts = async () => {
    const byPartition = Map.groupBy(await recordsOf(site.realm, site.realm.ledgerTopic), ({ partition }) => partition);
    return [...byPartition.values()].map((records) => {
      const { through } = decodeLedgerEntry(records.at(-1)?.message.value as Buffer);
      return through >= 0;
    });
  };
  await expect.poll(lasts).toEqual(Array(PARTITIONS).fill(true));
  await taking.stop();
  site.workers.pop();
}

function documentRequest(sequence: string, nth: number, firstSentMs?: number): TestRequest {
  return { correlationId: documentOf(sequence, nth), count: 1, sequence, ...(firstSentMs && { firstSentMs }) };
}

/**
 * Starts the site's workers, which refuse to serve with this reason until the operator agrees. An order that waits then
 * may be one that was sent before, as far as anyone knows; orders from then on get the next numbers that nobody has.
 */
async function adopted(site: Site, reason: string): Promise<void> {
  const before = await decisions(site);
  const waiting = documentRequest(INVOICES, 6);
  await site.realm.send([waiting]);
  for (const nth of [0, 1]) site.start(nth);
  await site.refuses(reason);
  if (reason === 'CLUSTER_CHANGED') {
    const ordered = await site.command('sequence', 'redefine', INVOICES, '--max', '999');
    expect(ordered).toMatchObject({ code: 1, stderr: expect.stringContaining(reason) });
  }
  expect(await decisions(site), 'nothing is decided before that').toBe(before);
  await site.adopt();
  await Promise.all(site.workers.map((worker) => worker.ready()));
  const answer = await site.answer(waiting.correlationId);
  expect([6, FORGOTTEN]).toContain(answer);
  expect(await site.asked(documentRequest(INVOICES, 7))).toBe(answer === 6 ? 7 : 6);
  expect(await site.asked(documentRequest(TICKETS, 6))).toBe(6);
}

/** The records of the ledger but for markers, with which workers sample the brokers' clocks. */
async function decisions({ realm }: Site): Promise<number> {
  const records = await recordsOf(realm, realm.ledgerTopic);
  return records.filter(({ message: { value } }) => value !== null && decodeLedgerEntry(value).kind !== 'marker')
    .length;
}

/**
 * Each document has its own number or is forgotten, and each request its own IDs or is forgotten, whether it is read
 * again or sent again. Returns what they were told beside what was theirs.
 */
async function expectOwnOrForgotten(site: Site, ids: readonly unknown[], goneMs: number): Promise<Set<unknown>> {
  const others = new Set<unknown>();
  const check = async (request: TestRequest, own: unknown) => {
    const answer = await site.asked({ ...request, firstSentMs: goneMs });
    expect([own, FORGOTTEN], request.correlationId).toContain(answer);
    if (answer !== own) others.add(answer);
  };
  for (const sequence of SEQUENCES) {
    for (const nth of [1, 2, 3, 4, 5]) await check(documentRequest(sequence, nth), nth);
  }
  for (const [i, own] of ids.entries()) await check({ correlationId: idsOf(i + 1), count: 1 }, own);
  return others;
}

describe.skipIf(noServers !== undefined)(`a site and its memories${noServers ? `: ${noServers}` : ''}`, () => {
  test('a mirror with the same offsets and a lag is not served until it is adopted; what the lag took is FORGOTTEN, and numbers go on', async () => {
    const { site, ids, goneMs } = await goneSite(suiteServers(), true);
    await using home = site;
    await using there = await home.on(second);
    const { ledgerTopic, requestTopic } = home.realm;
    await mirrorTopics(home.realm, there.realm, { lag: { [ledgerTopic]: 2, [requestTopic]: 1 } });
    await adopted(there, 'CLUSTER_CHANGED');
    for (const sequence of SEQUENCES) {
      for (const nth of [1, 2, 3]) expect(await there.answer(documentOf(sequence, nth))).toBe(nth);
      expect(await there.answer(documentOf(sequence, 4))).toBe(FORGOTTEN);
    }
    expect([await there.answer(idsOf(1)), await there.answer(idsOf(2))]).toEqual(ids.slice(0, 2));
    expect(await there.answer(idsOf(3))).toBe(FORGOTTEN);
    await expectOwnOrForgotten(there, ids, goneMs); // the last request of each partition was not mirrored
    await there.audited();
  });

  test('a copy with shifted offsets, as of a source that was trimmed, is not served until it is adopted; then numbers go on', async () => {
    const { site, ids, goneMs } = await goneSite(suiteServers());
    await using home = site;
    await takenOver(home);
    await using there = await home.on(second);
    const { ledgerTopic, requestTopic } = home.realm;
    await mirrorTopics(home.realm, there.realm, { shift: { [ledgerTopic]: 2, [requestTopic]: 3 } });
    await adopted(there, 'CLUSTER_CHANGED');
    await expectOwnOrForgotten(there, ids, goneMs);
    await there.audited();
  });

  test('an empty new cluster is not served until it is adopted; then numbers go on, and what was asked before is FORGOTTEN', async () => {
    const { site, ids, goneMs } = await goneSite(suiteServers());
    await using home = site;
    await using there = await home.on(second);
    await adopted(there, 'CLUSTER_CHANGED');
    expect(await expectOwnOrForgotten(there, ids, goneMs)).toEqual(new Set([FORGOTTEN]));
    await there.audited();
  });

  test('a ledger that was copied back at other offsets is not served until it is adopted; then numbers go on', async () => {
    const { site, ids, goneMs } = await goneSite(suiteServers());
    await using home = site;
    const { ledgerTopic } = home.realm;
    const records = await recordsOf(home.realm, ledgerTopic);
    await home.realm.recreate(ledgerTopic);
    for (const { partition, offset, message } of records) {
      const { key, value, headers = {} } = message;
      if (offset >= 2) await home.realm.sendRaw([{ partition, key, value, headers }], ledgerTopic);
    }
    await adopted(home, 'LEDGER_COPIED');
    await expectOwnOrForgotten(home, ids, goneMs);
    await home.audited();
  });

  test.for([true, false])(
    'the ledger loses its last records before the standby had read them, the owner notices it: %s; numbers go on behind those that were given out, and nothing gets a second batch',
    async (doesNotice) => {
      await using site = await Site.open({ ...suiteServers(), brokers: second.brokers });
      const { realm } = site;
      await site.command('sequence', 'create', INVOICES);
      const workers = [site.start(0), site.start(1)];
      await Promise.all(workers.map((worker) => worker.ready()));
      expect(await site.asked(documentRequest(INVOICES, 1))).toBe(1);
      const owner = workers.find((worker) => worker.partitions().includes(0)) as WorkerProcess;
      const standby = workers.find((worker) => worker !== owner) as WorkerProcess;
      standby.kill('SIGSTOP');
      const { to: from } = await wholePartition(realm.source, realm.ledgerTopic, 0);
      const ids = { correlationId: idFor('lost', 0, PARTITIONS), count: 1 };
      const batch = await site.asked(ids);
      for (const nth of [2, 3]) expect(await site.asked(documentRequest(INVOICES, nth))).toBe(nth);
      const askedMs = Date.now();
      // They are not read again, and etcd knows how far the ledger had gone.
      await expect.poll(async () => (await realm.committed()).get(0)).toBe(4);
      await site.remembered();

      const logged = owner.lines.length;
      if (!doesNotice) {
        await site.die();
        site.loseDisks();
      }
      await loseTail(second, { topic: realm.ledgerTopic, partition: 0, from });
      if (doesNotice) {
        const isRestore: Parameters<WorkerProcess['line']>[0] = ({ msg, partition }) =>
          partition === 0 && msg === 'restoring a ledger partition from the log';
        await owner.line(isRestore, logged);
        await owner.stop();
        standby.kill('SIGCONT');
      } else {
        const isStated: Parameters<WorkerProcess['line']>[0] = ({ msg }) =>
          msg === 'the ledger has lost numbers of sequences, which go on behind them';
        await site.start(0).line(isStated);
        expect(await site.asked(documentRequest(INVOICES, 4)), 'the first order, after nobody asked').toBe(4);
      }
      expect(await site.asked({ ...documentRequest(INVOICES, 2), firstSentMs: askedMs })).toBe(FORGOTTEN);
      expect([3, FORGOTTEN]).toContain(await site.asked({ ...documentRequest(INVOICES, 3), firstSentMs: askedMs }));
      expect([batch, FORGOTTEN]).toContain(await site.asked({ ...ids, firstSentMs: askedMs }));
      expect(await site.asked(documentRequest(INVOICES, 4))).toBe(4);
      await site.start(2).ready();
      expect(await site.asked(documentRequest(INVOICES, 5))).toBe(5);
      await site.audited();
    },
  );
});
