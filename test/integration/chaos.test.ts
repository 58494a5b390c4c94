import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { MAX_PAUSE_MS } from '../../src/core/clock-guard.ts';
import { type Played, playChaos } from '../chaos/chaos.ts';
import { SERVER_FAULTS, WORKER_FAULTS } from '../chaos/faults.ts';
import { HttpClient } from '../chaos/http-client.ts';
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
import { runIdalloc } from '../support/worker-process.ts';

// Stays alone: it freezes and kills any of the suite's servers, in an order that a seed gives, and its faults are
// timed: beside other tests the same seed would meet another history.

const PARTITIONS = 6;
const WORKERS = 3;
const SECONDS = Number(process.env.CHAOS_SECONDS ?? 30);
const SEED = Number(process.env.CHAOS_SEED ?? 1);
const LAYOUTS = (process.env.CHAOS_LAYOUT ?? 'default,js-safe').split(',') as readonly TestLayout[];
/** In this time each fault occurs. */
const ALL_FAULTS_SECONDS = 300;
/** A worker checks its deadline at least this often, or counts as paused; its clock may be 0.5 s off. */
const LATE_MS = MAX_PAUSE_MS + 500;
/** Time for the start, the recovery of all workers, and the check of a long history, on a busy machine. */
const OVERHEAD_MS = 600_000;

afterEach(async () => {
  for (let index = 0; index < ETCD_SIZE; index += 1) await suiteServers().resumeEtcd(index);
});

/**
 * For the search for a failure's cause: writes the logs of all workers to files; returns their place and record counts.
 */
async function keepLogs({ realm, replies, workers }: Scene): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), `idalloc-chaos-${SEED}-`));
  for (const [i, { lines }] of workers.entries()) {
    writeFileSync(join(directory, `process-${i}.log`), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  }
  const topics = [realm.requestTopic, realm.ledgerTopic, realm.replyTopic];
  const [requests, decisions, replied] = await Promise.all(topics.map((topic) => realm.records(topic)));
  const records = `${requests} requests, ${decisions} ledger entries, ${replied} replies, ${replies.seen.length} of them seen`;
  return `${records}; committed ${JSON.stringify([...(await realm.committed())])}; logs in ${directory}`;
}

/** Figures about a run, for its report. */
function figures({ workers, replies }: Scene, slots: readonly Slot[], played: readonly Played[]): string {
  const back = recoveries(played, workers, replies).toSorted((a, b) => a.tookMs - b.tookMs);
  const middle = back[Math.floor(back.length / 2)];
  return (
    `${played.length} faults; longest time without etcd before a worker stopped ${Math.max(0, ...silencesMs(workers))} ms; ` +
    `${slots.reduce((sum, slot) => sum + slot.takeovers(), 0)} takeovers of a frozen worker's ID; ` +
    `from a fault's end to the first reply: median ${middle?.tookMs} ms of ${back.length}, longest ${JSON.stringify(back.at(-1))}`
  );
}

test.for(LAYOUTS)(
  `in layout %s, each request gets one batch and all IDs differ under load and faults for ${SECONDS} s, in the order of seed ${SEED}`,
  {
    timeout: 1_000 * SECONDS + OVERHEAD_MS,
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
    await using httpClient = new HttpClient(slots, layoutOfEnv(scene.realm.env));
    let played: readonly Played[] = [];
    const play = async (load: Load) => {
      const trace = (line: string) => void process.stderr.write(`chaos: ${line}\n`);
      played = await playChaos(scene, slots, { seed: SEED, forMs: 1_000 * SECONDS, trace });
      const healedMs = performance.now();
      await Promise.all(slots.map((slot) => slot.back()));
      await httpClient.stop();
      const backMs = performance.now() - healedMs;
      await scene.replies.replies(load.requests.length);
      const answeredMs = performance.now() - healedMs;
      const often = Object.entries(Object.groupBy(played, ({ name }) => name)).map(([name, of]) => [name, of?.length]);
      await report(
        annotate,
        `chaos of seed ${SEED} in layout ${name}: all gates open ${Math.round(backMs)} ms after the last fault, all requests answered after ${Math.round(answeredMs)} ms; faults: ${JSON.stringify(Object.fromEntries(often))}`,
      );
    };
    try {
      const history = await scene.underLoad(play, undefined, httpClient.ids);
      const audit = await runIdalloc(['audit', '--json'], scene.realm.env);
      expect(JSON.parse(audit.stdout), audit.stderr).toMatchObject({ findings: [], waiting: 0 });
      const http = `${httpClient.ids.length} IDs over HTTP, ${JSON.stringify(httpClient.refused)} requests refused`;
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
