import { setTimeout as pause } from 'node:timers/promises';
import { waitForLeaders } from '../../src/adapters/kafka/topics/topics.ts';
import type { CopyReport } from '../../src/kafka/loops/copies.ts';
import { Member } from '../../src/kafka/loops/member.ts';
import { type MemberOptions, type MemberSettings, memberSettings } from '../../src/kafka/loops/member-options.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { kafkaDialer, seedsOf } from '../../src/kafka/wire/settings.ts';
import { RUNTIME } from '../../src/runtime.ts';
import { suiteServers } from './servers.ts';
import { unique } from './unique.ts';

export const PARTITIONS = 12;
export const SESSION_MS = 3_000;
export const HEARTBEAT_MS = 500;
/** Ends a wait for what never comes. */
const LATE_MS = 120_000;

export function connect(): Cluster {
  const dialer = kafkaDialer({ clientId: 'test', tls: false });
  return new Cluster({ dialer, seeds: seedsOf(suiteServers().brokers), runtime: RUNTIME });
}

/** Stands for a process: one member with its own connections. */
export class Process {
  readonly member: Member;
  readonly cluster = connect();
  held: readonly number[] = [];
  /** The partitions that it keeps copies of, and those of them that it will own. */
  standbys: readonly number[] = [];
  warmups: readonly number[] = [];
  /** All partitions that were added and removed, in order. */
  readonly added: number[] = [];
  readonly removed: number[] = [];
  readonly lost: string[] = [];
  readonly fenced: string[] = [];

  constructor(
    stage: Stage,
    options: Partial<MemberOptions & MemberSettings> & { readonly copies?: () => CopyReport } = {},
  ) {
    const { copies = () => new Map() } = options; // of empty logs, so that each member has them all
    const chosen = { sessionTimeoutMs: SESSION_MS, heartbeatMs: HEARTBEAT_MS, ...options };
    this.member = new Member({
      settings: memberSettings({ groupId: stage.id, topic: stage.id, partitions: PARTITIONS, ...chosen }),
      report: () => ({ copies: copies(), unreached: [] }),
      cluster: this.cluster,
      runtime: RUNTIME,
      onAssigned: ({ partitions, standbys, warmups, added, removed }) => {
        [this.held, this.standbys, this.warmups] = [partitions, standbys, warmups];
        this.added.push(...added);
        this.removed.push(...removed);
        stage.look();
      },
      onLost: ({ errorCode }) => {
        this.held = [];
        this.lost.push(errorCode);
        stage.look();
      },
      onFenced: ({ errorCode }) => this.fenced.push(errorCode),
      ...options,
    });
    stage.processes.push(this);
    this.member.start();
  }
}

/** One topic and the group that shares it. */
export class Stage {
  readonly id = `t${unique()}`;
  processes: Process[] = [];
  /** The time from which each partition has had no owner. */
  readonly #orphanedMs = new Map<number, number>();
  /** The longest time that each partition had no owner. */
  readonly silentMs = new Map<number, number>();
  #onLook = Promise.withResolvers<void>();

  async [Symbol.asyncDispose](): Promise<void> {
    for (const one of [...this.processes]) await this.kill(one);
  }

  look(): void {
    const held = new Set(this.processes.flatMap((one) => one.held));
    const nowMs = performance.now();
    for (let partition = 0; partition < PARTITIONS; partition += 1) {
      const sinceMs = this.#orphanedMs.get(partition);
      if (!held.has(partition)) {
        if (sinceMs === undefined) this.#orphanedMs.set(partition, nowMs);
      } else if (sinceMs !== undefined) {
        this.silentMs.set(partition, Math.max(this.silentMs.get(partition) ?? 0, nowMs - sinceMs));
        this.#orphanedMs.delete(partition);
      }
    }
    this.#onLook.resolve();
    this.#onLook = Promise.withResolvers();
  }

  /** Starts a new measurement of the time without owners. */
  watch(): number {
    this.silentMs.clear();
    return performance.now();
  }

  longestSilenceMs(partitions: readonly number[]): number {
    return Math.max(0, ...partitions.map((partition) => this.silentMs.get(partition) ?? 0));
  }

  /** Resolves when the processes share all partitions evenly. */
  shared(): Promise<void> {
    return this.when(() => {
      const counts = this.processes.map(({ held }) => held.length);
      const total = counts.reduce((sum, count) => sum + count, 0);
      return total === PARTITIONS && Math.max(...counts) - Math.min(...counts) <= 1;
    }, 'an even share of all partitions');
  }

  /** Resolves when the condition holds, which is checked after each assignment and at intervals. */
  async when(isSo: () => boolean, what: string): Promise<void> {
    const lateMs = performance.now() + LATE_MS;
    while (!isSo()) {
      if (performance.now() > lateMs) throw new Error(`still waiting after ${LATE_MS} ms for ${what}`);
      await Promise.race([this.#onLook.promise, pause(100)]);
    }
  }

  async leave(one: Process): Promise<void> {
    this.processes = this.processes.filter((other) => other !== one);
    await one.member.leave();
    this.look();
    await one.cluster.close();
  }

  /** Ends a process as a crash does, without leaving the group. */
  async kill(one: Process): Promise<void> {
    this.processes = this.processes.filter((other) => other !== one);
    this.look();
    await one.cluster.close();
    await one.member.leave();
  }
}

/**
 * A stage on a topic of its own, which every broker knows: kafkajs' consumers fail at a topic that is not known yet.
 */
export async function openStage(cluster: Cluster): Promise<Stage> {
  const stage = new Stage();
  const topics = [{ name: stage.id, partitions: PARTITIONS, replicas: 1, configs: {} }];
  const { controllerId } = await cluster.metadata([]);
  const answer = await cluster.call(controllerId, 'control', 10_000, (link) =>
    link.call('createTopics', { topics, timeoutMs: 10_000 }),
  );
  const errorCode = answer.topics[0]?.errorCode;
  if (errorCode !== undefined) throw new Error(`topic ${stage.id} was not created: ${errorCode}`);
  await waitForLeaders({ cluster, runtime: RUNTIME }, [stage.id]);
  return stage;
}
