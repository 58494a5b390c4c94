import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { playChaos } from '../chaos/chaos.ts';
import { Slot } from '../chaos/slot.ts';
import type { Load } from '../support/load.ts';
import { SHORT_LEASE } from '../support/realm.ts';
import { Scene } from '../support/scene.ts';
import { ETCD_SIZE, suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';

const PARTITIONS = 6;
const WORKERS = 3;
const SECONDS = Number(process.env.CHAOS_SECONDS ?? 30);
const SEED = Number(process.env.CHAOS_SEED ?? 1);
/** For the start, for all to come back, and for the check of a long history. */
const AROUND_MS = 240_000;

afterEach(async () => {
  for (let index = 0; index < ETCD_SIZE; index += 1) await suiteServers().resumeEtcd(index);
});

/** What each worker had to say, and what the broker has, for whoever looks for the cause of a failure. */
async function keepLogs({ realm, replies, workers }: Scene): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), `idalloc-chaos-${SEED}-`));
  for (const [i, { lines }] of workers.entries()) {
    writeFileSync(join(directory, `process-${i}.log`), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  }
  const topics = [realm.requestTopic, realm.ledgerTopic, realm.replyTopic];
  const [requests, decisions, told] = await Promise.all(topics.map((topic) => realm.records(topic)));
  const records = `${requests} requests, ${decisions} ledger entries, ${told} replies, ${replies.seen.length} of them seen`;
  return `${records}; committed ${JSON.stringify([...(await realm.committed())])}; logs in ${directory}`;
}

test(`faults in the order of seed ${SEED} for ${SECONDS} s under load: one batch for each request, all IDs differ`, {
  timeout: 1_000 * SECONDS + AROUND_MS,
}, async ({ annotate }) => {
  await using scene = await Scene.open({ partitions: PARTITIONS, env: { ...SHORT_LEASE, GATE_GRACE_MS: '3000' } });
  const slots = await Promise.all(Array.from({ length: WORKERS }, (_, index) => Slot.open(scene, index)));
  await Promise.all(slots.map(({ worker }) => worker.ready()));
  const trace: string[] = [];
  const play = async (load: Load) => {
    const played = await playChaos(scene, slots, {
      seed: SEED,
      forMs: 1_000 * SECONDS,
      trace: (line) => {
        trace.push(line);
        process.stderr.write(`chaos: ${line}\n`);
      },
    });
    const mendedMs = performance.now();
    await Promise.all(slots.map((slot) => slot.back()));
    const backMs = performance.now() - mendedMs;
    await scene.replies.replies(load.asks.length);
    const answeredMs = performance.now() - mendedMs;
    await report(
      annotate,
      `chaos of seed ${SEED}: all open ${Math.round(backMs)} ms after the last fault, all answered after ${Math.round(answeredMs)} ms; ${JSON.stringify(played)}`,
    );
  };
  try {
    const history = await scene.underLoad(play);
    await report(annotate, `chaos of seed ${SEED}: ${JSON.stringify(history)}`);
  } catch (error) {
    process.stderr.write(`chaos of seed ${SEED}: ${await keepLogs(scene)}\n`);
    throw error;
  }
  for (const slot of slots) expect(await slot.endedByItself(), `worker ${slot.index} ended by itself`).toBe(false);
  expect(trace.length).toBeGreaterThan(SECONDS / 10);
});
