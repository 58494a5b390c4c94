import type { Kafka } from 'kafkajs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { GroupConsumer } from '../../../src/adapters/kafka/group-consumer.ts';

type Listener = (event: { payload: unknown }) => void;

/** kafkajs' consumer as far as it is used: `run` ends when the test says so. */
function stage() {
  const listeners = new Map<string, Listener>();
  const calls: string[] = [];
  const running = Promise.withResolvers<void>();
  let mayRestart: () => Promise<boolean> = async () => true;
  const kafka = {
    consumer: (config: { retry: { restartOnFailure: () => Promise<boolean> } }) => {
      mayRestart = config.retry.restartOnFailure;
      return {
        on: (name: string, listener: Listener) => listeners.set(name, listener),
        connect: async () => undefined,
        subscribe: async () => undefined,
        run: () => running.promise,
        disconnect: async () => void calls.push('disconnect'),
      };
    },
  } as unknown as Kafka;
  const group = new GroupConsumer({
    kafka,
    topic: 'topic',
    config: { groupId: 'group' },
    onJoin: (partitions) => calls.push(`joined ${partitions}`),
    onInterrupted: () => calls.push('interrupted'),
    onCrash: (error) => calls.push(`crash ${error.message}`),
  });
  const emit = (name: string, payload: unknown = {}) => listeners.get(`consumer.${name}`)?.({ payload });
  return {
    group,
    calls,
    running,
    join: (partitions: readonly number[] = [0]) => emit('group_join', { memberAssignment: { topic: partitions } }),
    crash: (restart: boolean) => emit('crash', { restart, error: new Error('gone') }),
    rebalance: () => emit('rebalancing'),
    heartbeat: () => emit('heartbeat'),
    mayRestart: () => mayRestart(),
    /** Begins to run, up to where kafkajs joins. */
    run: async () => {
      void group.run({});
      await vi.advanceTimersByTimeAsync(0);
    },
  };
}

describe('a consumer whose join can be relied on', () => {
  it('tells which partitions each join brings', () => {
    const { calls, join } = stage();
    join([0, 2]);
    join([]);
    expect(calls).toEqual(['joined 0,2', 'joined ']);
  });

  it('goes on after a rebalance that ends in a join', () => {
    const { calls, join, rebalance, heartbeat } = stage();
    join();
    rebalance();
    join([1]);
    heartbeat();
    expect(calls).toEqual(['joined 0', 'interrupted', 'joined 1']);
  });

  it('counts as crashed when a heartbeat is accepted before the join of a rebalance', () => {
    const { calls, join, rebalance, heartbeat } = stage();
    join();
    rebalance();
    heartbeat();
    heartbeat();
    expect(calls).toEqual(['joined 0', 'interrupted', expect.stringMatching(/^crash .*not joined after a rebalance$/)]);
  });

  it('tells of a crash only when kafkajs does not start it again', () => {
    const { calls, join, crash } = stage();
    join();
    crash(true);
    crash(false);
    expect(calls).toEqual(['joined 0', 'interrupted', 'interrupted', 'crash gone']);
  });
});

describe('a consumer that stays ended', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });

  it('is disconnected at once while it runs', async () => {
    const { group, calls, running, run } = stage();
    await run();
    running.resolve();
    await vi.advanceTimersByTimeAsync(0);
    await group.end();
    expect(calls).toEqual(['disconnect']);
  });

  it('is disconnected after the join, when it is ended while it starts', async () => {
    const { group, calls, run, join } = stage();
    await run();
    const ended = group.end();
    await vi.advanceTimersByTimeAsync(0);
    expect(calls).toEqual([]);
    join();
    await vi.advanceTimersByTimeAsync(0);
    await ended;
    expect(calls).toEqual(['disconnect']);
  });

  it('does not start again after a crash, when it is ended while it starts', async () => {
    const { group, calls, run, crash, mayRestart } = stage();
    await run();
    expect(await mayRestart()).toBe(true);
    const ended = group.end();
    expect(await mayRestart()).toBe(false);
    crash(false);
    await vi.advanceTimersByTimeAsync(0);
    await ended;
    expect(calls).toEqual(['interrupted', 'disconnect']);
  });

  it('is not taken for running between a crash and the start that follows it', async () => {
    const { group, calls, running, run, join, crash } = stage();
    await run();
    crash(true);
    running.resolve();
    await vi.advanceTimersByTimeAsync(0);
    const ended = group.end();
    await vi.advanceTimersByTimeAsync(500);
    expect(calls).toEqual(['interrupted']);
    join();
    await vi.advanceTimersByTimeAsync(0);
    await ended;
    expect(calls).toEqual(['interrupted', 'disconnect']);
  });

  it('a start that takes long holds nobody up, and is ended all the same', async () => {
    const { group, calls, run, join } = stage();
    await run();
    const ended = group.end();
    await vi.advanceTimersByTimeAsync(1_000);
    await ended;
    expect(calls).toEqual([]);
    join();
    await vi.advanceTimersByTimeAsync(0);
    expect(calls).toEqual(['disconnect']);
  });
});
