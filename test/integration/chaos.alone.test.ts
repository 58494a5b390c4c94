import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { MAX_PAUSE_MS } from '../../src/core/clock-guard.ts';
import { type Played, playChaos } from '../chaos/chaos.ts';
import { SERVER_FAULTS, WORKER_FAULTS } from '../chaos/faults.ts';
import { HttpAsker } from '../chaos/http-asker.ts';
import { recoveries } from '../chaos/recoveries.ts';
import { Slot } from '../chaos/slot.ts';
import { FakedClock } from '../support/faked-clock.ts';
import { LAYOUT_ENVS, layoutOfEnv, type TestLayout } from '../support/layouts.ts';
import type { Load } from '../support/load.ts';
import { SHORT_LEASE } from '../support/realm.ts';
import { Scene } from '../support/scene.ts';
import { ETCD_SIZE, suiteServers } from '../support/servers.ts';
import { silencesMs } from '../support/stops.ts';
import { report } from '../support/whole-history.ts';

const PARTITIONS = 6;
const WORKERS = 3;
const SECONDS = Number(process.env.CHAOS_SECONDS ?? 30);
const SEED = Number(process.env.CHAOS_SEED ?? 1);
const LAYOUTS = (process.env.CHAOS_LAYOUT ?? 'default,js-safe').split(',') as readonly TestLayout[];
/** In so much time each fault has its turn. */
const ALL_FAULTS_SECONDS = 300;
/** A worker looks at its deadline after this at the latest, or counts as paused; the clock may say up to 0.5 s more. */
const LATE_MS = MAX_PAUSE_MS + 500;
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

/** What the long form tells beside being right. */
function figures({ workers, replies }: Scene, slots: readonly Slot[], played: readonly Played[]): string {
  const back = recoveries(played, workers, replies).toSorted((a, b) => a.tookMs - b.tookMs);
  const middle = back[Math.floor(back.length / 2)];
  return (
    `${played.length} faults; longest silence before a stop ${Math.max(0, ...silencesMs(workers))} ms; ` +
    `${slots.reduce((sum, slot) => sum + slot.takeovers(), 0)} takeovers of a frozen worker's ID; ` +
    `fault's end to first reply (${back.length}): ${middle?.tookMs} ms, at most ${JSON.stringify(back.at(-1))}`
  );
}

test.for(LAYOUTS)(
  `in layout %s, faults in the order of seed ${SEED} for ${SECONDS} s under load: one batch for each request, all IDs differ`,
  {
    timeout: 1_000 * SECONDS + AROUND_MS,
  },
  async (name, context) => {
    const { annotate } = context;
    using machines = new DisposableStack();
    const env = { ...SHORT_LEASE, GATE_GRACE_MS: '3000', ...LAYOUT_ENVS[name] };
    await using scene = await Scene.open({ partitions: PARTITIONS, env });
    const slots: Slot[] = [];
    for (let index = 0; index < WORKERS; index += 1) {
      const clock = machines.use(await FakedClock.create(context));
      slots.push(machines.use(await Slot.open(scene, index, clock)));
    }
    await Promise.all(slots.map(({ worker }) => worker.ready()));
    await using asker = new HttpAsker(slots, layoutOfEnv(scene.realm.env));
    let played: readonly Played[] = [];
    const play = async (load: Load) => {
      const trace = (line: string) => void process.stderr.write(`chaos: ${line}\n`);
      played = await playChaos(scene, slots, { seed: SEED, forMs: 1_000 * SECONDS, trace });
      const mendedMs = performance.now();
      await Promise.all(slots.map((slot) => slot.back()));
      await asker.stop();
      const backMs = performance.now() - mendedMs;
      await scene.replies.replies(load.asks.length);
      const answeredMs = performance.now() - mendedMs;
      const often = Object.entries(Object.groupBy(played, ({ name }) => name)).map(([name, of]) => [name, of?.length]);
      await report(
        annotate,
        `chaos of seed ${SEED} in layout ${name}: all open ${Math.round(backMs)} ms after the last fault, all answered after ${Math.round(answeredMs)} ms; ${JSON.stringify(Object.fromEntries(often))}`,
      );
    };
    try {
      const history = await scene.underLoad(play, undefined, asker.ids);
      const http = `${asker.ids.length} IDs over HTTP, ${JSON.stringify(asker.refused)} requests refused`;
      await report(
        annotate,
        `chaos of seed ${SEED} in layout ${name}: ${JSON.stringify(history)}; ${http}; ${figures(scene, slots, played)}`,
      );
    } catch (error) {
      process.stderr.write(`chaos of seed ${SEED}: ${await keepLogs(scene)}\n`);
      throw error;
    }
    expect(Math.max(0, ...silencesMs(scene.workers))).toBeLessThan(Number(SHORT_LEASE.ETCD_REFUSE_AFTER_MS) + LATE_MS);
    expect(played.length).toBeGreaterThan(SECONDS / 10);
    if (SECONDS < ALL_FAULTS_SECONDS) return;
    const all = [...SERVER_FAULTS, ...WORKER_FAULTS].map(({ name }) => name);
    expect(new Set(played.map(({ name }) => name))).toEqual(new Set(all));
  },
);
