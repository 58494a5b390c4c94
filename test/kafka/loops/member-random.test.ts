import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Assigned } from '../../../src/kafka/loops/member-options.ts';
import type { Copy } from '../../../src/kafka/loops/planner.ts';
import { examples } from '../../support/examples.ts';
import { FAIR, type Weather } from '../../support/fake-kafka/network.ts';
import { GROUP, GroupStage, PARTITIONS, type StagedMember } from './group-stage.ts';

const SESSION_MS = 10_000;
const NAMES = ['a', 'b', 'c', 'd'] as const;
const NODES = [1, 2, 3] as const;
const COMMIT_EVERY_MS = 700;
const LOG_END = 1_000_000;

type Name = (typeof NAMES)[number];
type Node = (typeof NODES)[number];

/** An event in the group, followed by a pause. */
type Step =
  | { readonly kind: 'start' | 'leave' | 'crash' | 'restart'; readonly name: Name; readonly thenMs: number }
  | { readonly kind: 'rejoin'; readonly name: Name; readonly thenMs: number }
  | { readonly kind: 'cut'; readonly name: Name; readonly forMs: number; readonly thenMs: number }
  | { readonly kind: 'freeze'; readonly node: Node; readonly forMs: number; readonly thenMs: number }
  | { readonly kind: 'kill'; readonly node: Node; readonly forMs: number; readonly thenMs: number }
  | { readonly kind: 'move'; readonly thenMs: number }
  | { readonly kind: 'weather'; readonly weather: Partial<Weather>; readonly thenMs: number };

const name = fc.constantFrom(...NAMES);
const node = fc.constantFrom(...NODES);
const thenMs = fc.oneof(fc.nat(40), fc.nat(1_500), fc.nat(15_000));
const forMs = fc.oneof(fc.nat(3_000), fc.nat(25_000));
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constantFrom('start', 'start', 'leave', 'crash', 'restart'), name, thenMs }),
  fc.record({ kind: fc.constant('rejoin'), name, thenMs }),
  fc.record({ kind: fc.constant('cut'), name, forMs, thenMs }),
  fc.record({ kind: fc.constantFrom('freeze', 'kill'), node, forMs, thenMs }),
  fc.record({ kind: fc.constant('move'), thenMs }),
  fc.record({
    kind: fc.constant('weather'),
    weather: fc.constantFrom({}, { reset: 0.05 }, { late: 0.02 }, { lost: 0.01, refused: 0.2 }, { lateCommits: 0.5 }),
    thenMs,
  }),
);

/**
 * A group under random events. Some members are static, and return with their instance ID; all return with their
 * copies.
 */
class Play {
  readonly stage = new GroupStage({ nodes: NODES.length, groups: { loadMs: () => 200 } });
  readonly running = new Map<Name, StagedMember>();
  readonly all: StagedMember[] = [];
  readonly #disks = new Map<Name, Map<number, Copy>>();
  readonly #copyMs: number;
  #offset = 0;
  #over = false;

  /** How long a copy takes to become complete. */
  constructor(copyMs: number) {
    this.#copyMs = copyMs;
    void this.#commitNowAndThen();
  }

  start(who: Name): void {
    if (this.running.has(who)) return;
    const instanceId = who === 'a' || who === 'b' ? { instanceId: `worker-${who}` } : {};
    const member: StagedMember = this.stage.member(who, {
      ...instanceId,
      copies: () => new Map(this.#disk(who)),
      standbys: 1,
      beforeRejoin: () => this.#commit(member),
      onAssigned: (assigned) => {
        member.onAssigned(assigned);
        this.#copy(who, member, assigned);
      },
    });
    this.running.set(who, member.start());
    this.all.push(member);
  }

  async take({ kind, ...step }: Step): Promise<void> {
    const { kafka, network, runtime } = this.stage;
    if ('name' in step) {
      const member = this.running.get(step.name);
      if (kind === 'cut' && member !== undefined && 'forMs' in step) {
        member.isReachable = false;
        runtime.schedule(step.forMs, () => {
          member.isReachable = true;
        });
      } else if (kind === 'rejoin') {
        member?.member.rejoin('for the sake of it');
      } else if (kind !== 'start' && kind !== 'cut') {
        this.running.delete(step.name);
        if (kind === 'leave') await member?.leave();
        else member?.crash();
      }
      if (kind === 'start' || kind === 'restart') this.start(step.name);
    }
    if ('node' in step) {
      const isUp = kafka.broker(step.node).state === 'up';
      if (isUp && kind === 'freeze') kafka.freeze(step.node);
      else if (isUp) kafka.crash(step.node);
      runtime.schedule(step.forMs, () => {
        kafka.thaw(step.node);
        kafka.restart(step.node);
      });
    }
    if (kind === 'move') kafka.moveCoordinator(GROUP);
    if ('weather' in step) network.weather = { ...FAIR, ...step.weather };
    await this.stage.pass(step.thenMs);
  }

  /** Ends all faults; resolves when the remaining members share the topic. */
  async calm(): Promise<void> {
    const { network, kafka } = this.stage;
    network.weather = FAIR;
    await this.stage.pass(30_000);
    for (const broker of NODES) {
      kafka.thaw(broker);
      kafka.restart(broker);
    }
    for (const [who, member] of this.running) if (member.fenced.length > 0) this.running.delete(who);
    if (this.running.size === 0) this.start('d');
    await this.stage.settled(...this.running.values());
    // A member without copies gets its share once it has them; after that nothing moves.
    await this.stage.until(() => this.#isBalanced, 'a balanced group');
    await this.stage.settled(...this.running.values());
    const { generation } = this.stage.group;
    await this.stage.pass(300_000);
    expect(this.stage.group.generation, 'no joins without end').toBeLessThanOrEqual(generation + 2);
    this.#over = true;
  }

  get #isBalanced(): boolean {
    const counts = [...this.running.values()].map(({ held }) => held.length);
    return Math.max(...counts) - Math.min(...counts) <= 1;
  }

  #disk(who: Name): Map<number, Copy> {
    const disk = this.#disks.get(who) ?? new Map<number, Copy>();
    this.#disks.set(who, disk);
    return disk;
  }

  /** Drops the copies that the member should not keep, and completes the others. */
  #copy(who: Name, member: StagedMember, { partitions, standbys }: Assigned): void {
    const disk = this.#disk(who);
    const kept = new Set([...partitions, ...standbys]);
    for (const partition of disk.keys()) if (!kept.has(partition)) disk.delete(partition);
    const behind = [...kept].filter((partition) => !disk.has(partition));
    if (behind.length === 0) return;
    this.stage.runtime.schedule(this.#copyMs, () => {
      if (this.running.get(who) !== member) return;
      for (const partition of behind) disk.set(partition, { end: LOG_END, logEnd: LOG_END });
      member.member.rejoin('copies are complete');
    });
  }

  async #commitNowAndThen(): Promise<void> {
    while (!this.#over) {
      await this.stage.runtime.sleep(COMMIT_EVERY_MS);
      for (const member of this.running.values()) void this.#commit(member);
    }
  }

  async #commit(member: StagedMember): Promise<void> {
    this.#offset += 1;
    await member.commit(Object.fromEntries(member.held.map((partition) => [partition, this.#offset])));
  }
}

/** Whether one of the calls was made while another one was in flight. */
function overlaps(calls: StagedMember['calls'], others: StagedMember['calls'] = calls): boolean {
  return calls.some(({ sentMs }, i) =>
    others.some((other, at) => {
      const isEarlier = calls === others ? at < i : other.sentMs < sentMs;
      return isEarlier && (other.endedMs ?? Number.POSITIVE_INFINITY) > sentMs;
    }),
  );
}

function check(member: StagedMember): void {
  const [joins, syncs, commits] = (['joinGroup', 'syncGroup', 'offsetCommit'] as const).map((call) =>
    member.called(call),
  ) as [StagedMember['calls'], StagedMember['calls'], StagedMember['calls']];
  expect(overlaps(commits), 'one commit at a time').toBe(false);
  expect(overlaps([...joins, ...syncs].sort((x, y) => x.sentMs - y.sentMs)), 'one join at a time').toBe(false);
  expect(overlaps(joins, commits), 'no commit in flight at a JoinGroup').toBe(false);
  const generations = member.assigned.map(({ generation }) => generation);
  expect(generations, 'generations rise').toEqual(generations.toSorted((x, y) => x - y));
}

/** No member holds partitions without an answered heartbeat for a session. */
function checkSessions(play: Play): void {
  const { nowMs } = play.stage;
  for (const member of play.running.values()) {
    if (member.held.length === 0) continue;
    const sign = member.calls.findLast(
      ({ call, errorCode, endedMs }) =>
        (call === 'heartbeat' || call === 'syncGroup') &&
        endedMs !== undefined &&
        (errorCode === undefined || errorCode === 'REBALANCE_IN_PROGRESS'),
    );
    expect(nowMs - (sign?.sentMs ?? Number.NEGATIVE_INFINITY)).toBeLessThanOrEqual(SESSION_MS);
  }
}

describe('members of a group under any faults', () => {
  it('keep the order of joins and commits, and share the topic in the end', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 25 }), fc.nat(8_000), async (steps, copyMs) => {
        const play = new Play(copyMs);
        play.start('a');
        for (const one of steps) {
          await play.take(one);
          checkSessions(play);
        }
        await play.calm();
        play.all.forEach(check);
        const members = [...play.running.values()];
        expect(play.stage.owners(...members)).toEqual(new Array(PARTITIONS).fill(1));
        const counts = members.map(({ held }) => held.length);
        expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
      }),
      { numRuns: examples(12, 3) },
    );
  });
});
