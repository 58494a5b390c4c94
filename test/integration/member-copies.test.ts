import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Copy } from '../../src/kafka/loops/copies.ts';
import type { Cluster } from '../../src/kafka/wire/cluster.ts';
import { connect, openStage, PARTITIONS, Process, type Stage } from '../support/group-processes.ts';

const LOG_END = 1_000_000;
const REJOIN_AFTER_MS = 300;
const ALL = Array.from({ length: PARTITIONS }, (_, at) => at);

const ms = (value: number) => `${value.toFixed(1)} ms`;
const complete = (partitions: readonly number[]) =>
  new Map<number, Copy>(partitions.map((at) => [at, { end: LOG_END, logEnd: LOG_END }]));

/** A process with those copies, to which the test can add. */
function keeper(stage: Stage, copies: Map<number, Copy>, options: { readonly instanceId?: string }): Process {
  return new Process(stage, {
    ...options,
    copies: () => new Map(copies),
    standbys: 1,
    rejoinAfterMs: REJOIN_AFTER_MS,
  });
}

let cluster: Cluster;

beforeAll(() => {
  cluster = connect();
});

afterAll(async () => {
  await cluster.close();
});

/** Waits until long after the last rebalance, so that only the next action can start another one. */
async function quiet(stage: Stage, ...processes: readonly Process[]): Promise<number> {
  const generations = () => processes.map(({ member }) => member.generation);
  await stage.when(() => new Set(generations()).size === 1, 'one generation');
  return generations()[0] ?? 0;
}

describe.each([
  ['dynamic', () => ({})],
  ['static', (instanceId: string) => ({ instanceId })],
] as const)('%s members with copies, on real brokers', (_, named) => {
  test('warm up beside the owner, and take over when one of them joins again', async ({ annotate }) => {
    await using stage = await openStage(cluster);
    const a = keeper(stage, complete(ALL), named('a'));
    await stage.when(() => a.held.length === PARTITIONS, 'a first member');
    const copies = complete([]);
    const b = keeper(stage, copies, named('b'));
    await stage.when(() => b.warmups.length === PARTITIONS / 2, 'warm-ups');
    expect([a.held, b.held, b.standbys]).toEqual([ALL, [], ALL]);

    const generation = await quiet(stage, a, b);
    const beganMs = stage.watch();
    for (const [at, copy] of complete(ALL)) copies.set(at, copy);
    b.member.rejoin('all copies are complete');
    await stage.shared();
    await annotate(`a take-over: ${ms(performance.now() - beganMs)}, silent ${ms(stage.longestSilenceMs(ALL))}`);
    expect(stage.longestSilenceMs(a.held)).toBe(0);
    expect(await quiet(stage, a, b)).toBe(generation + 1);
    expect([a.removed, b.added, a.added.length]).toEqual([b.held, b.held, PARTITIONS]);
    expect([a.standbys, b.standbys, b.warmups]).toEqual([b.held, a.held, []]);
    expect([...a.lost, ...b.lost]).toEqual([]);
  });

  test('plan again when the leader rejoins, and nothing moves if nothing has changed', async () => {
    await using stage = await openStage(cluster);
    const a = keeper(stage, complete(ALL), named('a'));
    await stage.when(() => a.held.length === PARTITIONS, 'a first member');
    const b = keeper(stage, complete(ALL), named('b'));
    await stage.shared();
    const [before, generation] = [[a.held, b.held, a.standbys, b.standbys], await quiet(stage, a, b)];
    a.member.rejoin('for the sake of it');
    await stage.when(() => a.member.generation === generation + 1 && b.member.generation === generation + 1, 'a plan');
    b.member.rejoin('for the sake of it');
    await stage.when(() => a.member.generation === generation + 2 && b.member.generation === generation + 2, 'a plan');
    expect([a.held, b.held, a.standbys, b.standbys]).toEqual(before);
    expect([...a.lost, ...b.lost]).toEqual([]);
  });
});

test('follow a restarted static leader, which plans by the report of another member', async () => {
  await using stage = await openStage(cluster);
  const a = keeper(stage, complete(ALL), { instanceId: 'a' });
  await stage.when(() => a.held.length === PARTITIONS, 'a first member');
  const copies = complete([]);
  const b = keeper(stage, copies, { instanceId: 'b' });
  await stage.when(() => b.warmups.length === PARTITIONS / 2, 'warm-ups');
  const generation = await quiet(stage, a, b);
  await stage.kill(a);
  const again = keeper(stage, complete(ALL), { instanceId: 'a' });
  await stage.when(() => again.held.length === PARTITIONS, 'a return');
  expect(await quiet(stage, again, b)).toBe(generation);

  for (const [at, copy] of complete(ALL)) copies.set(at, copy);
  b.member.rejoin('all copies are complete');
  await stage.shared();
  expect([again.removed, b.added]).toEqual([b.held, b.held]);
});
