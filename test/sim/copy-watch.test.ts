import { expect, it } from 'vitest';
import { encodeJoining, STICKY } from '../../src/kafka/loops/member-claims.ts';
import type { JoinGroupRequest } from '../../src/kafka/wire/group-apis.ts';
import type { LedgerCopies } from '../../src/ledger/ledger-ports.ts';
import { statement } from '../support/memory-records.ts';
import { Brokers } from './brokers.ts';
import { CopyWatch } from './copy-watch.ts';
import { emptyHistory } from './history.ts';
import { FIRST } from './pairs.ts';
import { World } from './world.ts';

const DEAF_MS = 5_000;
const KNOWN_MS = 1_000;

/** A process whose copy of ledger partition 0 always ends with the same entry, which no new log has. */
function reporting() {
  const world = new World(1, false);
  const history = emptyHistory();
  const brokers = new Brokers(world, history);
  const watch = new CopyWatch({ world, brokers, history }, 'm0.1', FIRST);
  const copy = {
    held: () => [],
    load: () => false,
    wipe: () => {},
    last: () => ({ offset: 0, digest: Buffer.alloc(32) }),
  };
  const index = watch.around(copy as unknown as LedgerCopies);
  const report = () => {
    const claims = { generation: 1, partitions: [], standbys: [], warmups: [] };
    const metadata = encodeJoining(FIRST.requests, claims, {
      copies: new Map([[0, { end: 1, logEnd: 1 }]]),
      unreached: [],
    });
    watch.observer.sent('joinGroup', { protocols: [{ name: STICKY, metadata }] } as unknown as JoinGroupRequest);
    return history.falseCopies.length;
  };
  const pass = (ms: number) => world.run(world.nowMs + ms, () => false);
  return { brokers, index, report, pass };
}

it('a copy that was opened while a broker still served the deleted log may be of that log; one opened later may not', async () => {
  const { brokers, index, report, pass } = reporting();
  await pass(KNOWN_MS);
  for (const node of brokers.nodes) brokers.cluster.deafen(node, DEAF_MS);
  brokers.recreateLedger();
  index.load(0);
  expect(report(), 'the process cannot know').toBe(0);
  await pass(DEAF_MS - KNOWN_MS);
  index.wipe(0, 0);
  expect(report(), 'nor now').toBe(0);
  await pass(2 * KNOWN_MS);
  expect(report(), 'it may not have noticed').toBe(0);

  index.wipe(0, 0);
  brokers.cluster.send(FIRST.ledger, 0, [statement(0)]);
  expect(report(), 'all brokers know the new log').toBe(1);
});
