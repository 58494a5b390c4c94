import { setTimeout as pause } from 'node:timers/promises';
import type { Scene } from '../support/scene.ts';
import { ETCD_SIZE, etcdLeader } from '../support/servers.ts';
import type { Slot } from './slot.ts';

/** What the seed decides about one fault; the tables below have the rest. */
export interface Step {
  readonly fault: Fault;
  /** The worker that it affects; not used by the servers' faults. */
  readonly slot: Slot;
  readonly restMs: number;
  readonly lastsMs: number;
  /** A random number from [0, 1), for any other choice of the fault. */
  readonly chance: number;
}

/** A fault: `play` injects it, keeps it for a time and removes it; it resolves when the fault is removed. */
interface Fault {
  readonly name: string;
  readonly lastsMs: readonly [low: number, high: number];
  /** How often it occurs in each pass over its table; once by default. */
  readonly times?: number;
  readonly play: (scene: Scene, step: Step) => Promise<void>;
}

/** Steps of the wall clock. A worker tolerates less than 10 ms backward, and up to a second forward. */
const CLOCK_STEPS = {
  '-1 ms': -1,
  '-8 ms': -8,
  '-12 ms': -12,
  '-50 ms': -50,
  '-1 h': -3_600_000,
  '+500 ms': 500,
  '+2 s': 2_000,
  '+1 h': 3_600_000,
  '+1 y': 365 * 24 * 3_600_000,
} as const;
const STROBE_MS = 100;
/** Enough for taking over a frozen worker's ID: its lease expires, and the group rebalances without it. */
const HEIR_LIMIT_MS = 30_000;
/** How long the heir and the worker that it succeeds run side by side. */
const BOTH_MS = 2_000;

/**
 * Etcd's faults are more frequent: without the broker nothing is served for some 20 s, and other faults show little.
 */
const ETCD_TIMES = 4;

const member = (chance: number, offset = 0): number => (Math.floor(chance * ETCD_SIZE) + offset) % ETCD_SIZE;

async function freezeMembers({ servers }: Scene, members: readonly number[], ms: number): Promise<void> {
  await Promise.all(members.map((index) => servers.pauseEtcd(index)));
  await pause(ms);
  await Promise.all(members.map((index) => servers.resumeEtcd(index)));
}

/** Resolves after ms, or as soon as the signal aborts; never rejects. */
const waited = (ms: number, signal: AbortSignal): Promise<void> =>
  pause(ms, undefined, { signal }).catch(() => undefined);

async function onLink({ slot, lastsMs }: Step, disturb: () => void): Promise<void> {
  disturb();
  await pause(lastsMs);
  slot.link.heal();
}

/** Freezes a worker for longer than its lease, so that another process takes its worker ID; then both run. */
async function followFrozen(_scene: Scene, { slot, lastsMs }: Step): Promise<void> {
  slot.worker.kill('SIGSTOP');
  const heir = slot.heir();
  const over = new AbortController();
  // The heir exits if it reaches no broker, and waits if another process holds the worker ID by now.
  const serves = heir.ready().then(
    () => pause(BOTH_MS),
    () => undefined,
  );
  await Promise.all([pause(lastsMs), Promise.race([serves, waited(HEIR_LIMIT_MS, over.signal)])]);
  over.abort();
  slot.worker.kill('SIGCONT');
  await pause(BOTH_MS);
  await heir.stop();
}

/** Faults of the servers, one at a time. */
export const SERVER_FAULTS: readonly Fault[] = [
  {
    name: 'one etcd member is frozen',
    times: ETCD_TIMES,
    lastsMs: [500, 6_000],
    play: (scene, { chance, lastsMs }) => freezeMembers(scene, [member(chance)], lastsMs),
  },
  {
    name: 'two etcd members are frozen',
    times: ETCD_TIMES,
    lastsMs: [500, 8_000],
    play: (scene, { chance, lastsMs }) => freezeMembers(scene, [member(chance), member(chance, 1)], lastsMs),
  },
  {
    name: 'the etcd leader is killed',
    times: ETCD_TIMES,
    lastsMs: [200, 3_000],
    async play({ servers }, { lastsMs }) {
      const leader = await etcdLeader(servers);
      await servers.killEtcd(leader);
      await pause(lastsMs);
      await servers.restartEtcd(leader);
    },
  },
  {
    name: 'the broker is killed',
    lastsMs: [0, 3_000],
    async play({ servers }, { lastsMs }) {
      await servers.killKafka();
      await pause(lastsMs);
      await servers.restartKafka();
    },
  },
];

/** Faults of one worker, one at a time. Add further kinds of faults here. */
export const WORKER_FAULTS: readonly Fault[] = [
  {
    name: 'its etcd is slow',
    lastsMs: [1_000, 6_000],
    play: (_scene, step) => onLink(step, () => step.slot.link.slow(200 + 2_800 * step.chance)),
  },
  {
    name: 'its etcd is silent',
    lastsMs: [500, 14_000],
    play: (_scene, step) => onLink(step, () => step.slot.link.silence()),
  },
  {
    name: 'it is cut off from etcd',
    lastsMs: [500, 14_000],
    play: (_scene, step) => onLink(step, () => step.slot.link.cut()),
  },
  {
    name: 'its lease is revoked',
    lastsMs: [0, 2_000],
    async play({ realm }, { slot, lastsMs }) {
      const owner = await realm.owner(slot.workerId()).catch(() => undefined);
      // While etcd itself is down, the lease can't be revoked.
      if (owner !== undefined) await realm.etcd.revokeLease(owner.leaseId).catch(() => undefined);
      await pause(lastsMs);
    },
  },
  {
    name: 'it is frozen',
    lastsMs: [500, 14_000],
    async play(_scene, { slot, lastsMs }) {
      slot.worker.kill('SIGSTOP');
      await pause(lastsMs);
      slot.worker.kill('SIGCONT');
    },
  },
  {
    name: 'it is frozen, and another takes its worker ID',
    lastsMs: [11_000, 14_000],
    play: followFrozen,
  },
  ...Object.entries(CLOCK_STEPS).map(
    ([by, offsetMs]): Fault => ({
      name: `its clock steps by ${by}`,
      lastsMs: [300, 4_000],
      async play(_scene, { slot, lastsMs }) {
        slot.clock.set(offsetMs);
        await pause(lastsMs);
        slot.clock.set(0);
      },
    }),
  ),
  {
    name: 'its clock jumps back and forth',
    lastsMs: [1_000, 5_000],
    async play(_scene, { slot, lastsMs }) {
      for (let passedMs = 0; passedMs < lastsMs; passedMs += STROBE_MS) {
        slot.clock.set((passedMs / STROBE_MS) % 2 === 0 ? -STROBE_MS : 0);
        await pause(STROBE_MS);
      }
      slot.clock.set(0);
    },
  },
  {
    name: 'its clock stands still',
    lastsMs: [5_000, 5_000],
    async play(_scene, { slot, lastsMs }) {
      await slot.clock.freeze();
      await pause(lastsMs);
      slot.clock.set(0);
    },
  },
  {
    name: 'it is killed',
    lastsMs: [0, 3_000],
    play: (_scene, { slot, lastsMs }) => slot.replace('SIGKILL', lastsMs),
  },
  {
    name: 'it is killed, and its index is emptied while it is down',
    lastsMs: [0, 3_000],
    play: (_scene, { slot, lastsMs }) => slot.replace('SIGKILL', lastsMs, 'emptied'),
  },
  {
    name: 'it is stopped by SIGTERM',
    lastsMs: [0, 1_000],
    play: (_scene, { slot, lastsMs }) => slot.replace('SIGTERM', lastsMs),
  },
];
