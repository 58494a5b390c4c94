import { setTimeout as pause } from 'node:timers/promises';
import type { Scene } from '../support/scene.ts';
import { ETCD_SIZE, etcdLeader } from '../support/servers.ts';
import type { Slot } from './slot.ts';

/** What a seed says of one fault: the rest of it is in the table below. */
export interface Step {
  readonly fault: Fault;
  /** The worker that it befalls; for the servers' faults it is only a number. */
  readonly slot: Slot;
  readonly restMs: number;
  readonly lastsMs: number;
  /** From [0, 1): for whatever else the fault has to choose. */
  readonly chance: number;
}

/** A fault that is done, kept up, and mended again; `play` resolves when it is mended. */
interface Fault {
  readonly name: string;
  readonly lastsMs: readonly [low: number, high: number];
  /** How often it comes before all others of its table have come; once by default. */
  readonly times?: number;
  readonly play: (scene: Scene, step: Step) => Promise<void>;
}

/** By how much a clock is set wrong. Less than 10 ms back, and up to a second forward, a worker bears. */
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
/** What a worker needs to take over from one that is frozen: the lease's rest, and the join of a group that misses it. */
const HEIR_LIMIT_MS = 30_000;
/** How long the heir and the one that it follows serve side by side. */
const BOTH_MS = 2_000;

/** Without a broker nothing is served for 20 s or so, and what else befalls a worker meanwhile shows little. */
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

async function onLink({ slot, lastsMs }: Step, spoil: () => void): Promise<void> {
  spoil();
  await pause(lastsMs);
  slot.link.heal();
}

/** Another process takes the worker ID of one that is frozen for longer than its lease; then both serve. */
async function followFrozen(_scene: Scene, { slot, lastsMs }: Step): Promise<void> {
  slot.worker.kill('SIGSTOP');
  const heir = slot.heir();
  const over = new AbortController();
  // It ends when it finds no broker, and waits when somebody else has the worker ID by now.
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

/** What befalls the servers, one at a time. */
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

/** What befalls one worker; the faults of a worker come one after another. A further kind of fault goes in here. */
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
      // While etcd itself is away there is nobody to revoke it.
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
    name: 'it is stopped in good order',
    lastsMs: [0, 1_000],
    play: (_scene, { slot, lastsMs }) => slot.replace('SIGTERM', lastsMs),
  },
];
