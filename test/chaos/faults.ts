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
  readonly play: (scene: Scene, step: Step) => Promise<void>;
}

const member = (chance: number, offset = 0): number => (Math.floor(chance * ETCD_SIZE) + offset) % ETCD_SIZE;

async function freezeMembers({ servers }: Scene, members: readonly number[], ms: number): Promise<void> {
  await Promise.all(members.map((index) => servers.pauseEtcd(index)));
  await pause(ms);
  await Promise.all(members.map((index) => servers.resumeEtcd(index)));
}

async function onLink({ slot, lastsMs }: Step, spoil: () => void): Promise<void> {
  spoil();
  await pause(lastsMs);
  slot.link.heal();
}

/** What befalls the servers, one at a time. */
export const SERVER_FAULTS: readonly Fault[] = [
  {
    name: 'one etcd member is frozen',
    lastsMs: [500, 6_000],
    play: (scene, { chance, lastsMs }) => freezeMembers(scene, [member(chance)], lastsMs),
  },
  {
    name: 'two etcd members are frozen',
    lastsMs: [500, 8_000],
    play: (scene, { chance, lastsMs }) => freezeMembers(scene, [member(chance), member(chance, 1)], lastsMs),
  },
  {
    name: 'the etcd leader is killed',
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
    play: (_scene, step) => onLink(step, () => step.slot.link.slow(200 + 1_300 * step.chance)),
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
      const workerId = slot.worker.lines.findLast(({ msg }) => msg === 'worker ID acquired')?.workerId;
      const owner = workerId === undefined ? undefined : await realm.owner(Number(workerId)).catch(() => undefined);
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
    name: 'it is killed',
    lastsMs: [0, 3_000],
    play: (_scene, { slot, lastsMs }) => slot.replace('SIGKILL', lastsMs),
  },
  {
    name: 'it is stopped in good order',
    lastsMs: [0, 1_000],
    play: (_scene, { slot, lastsMs }) => slot.replace('SIGTERM', lastsMs),
  },
];
