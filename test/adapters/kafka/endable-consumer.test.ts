import type { Kafka } from 'kafkajs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { EndableConsumer } from '../../../src/adapters/kafka/endable-consumer.ts';

type Listener = (event: { payload: { restart?: boolean } }) => void;

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
        run: () => running.promise,
        disconnect: async () => void calls.push('disconnect'),
      };
    },
  } as unknown as Kafka;
  const endable = new EndableConsumer(kafka, { groupId: 'group' });
  const tell = (name: 'group_join' | 'crash', restart?: boolean) =>
    listeners.get(`consumer.${name}`)?.({ payload: restart === undefined ? {} : { restart } });
  return { endable, calls, running, tell, mayRestart: () => mayRestart() };
}

describe('a consumer that stays ended', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });

  it('is disconnected at once while it runs', async () => {
    const { endable, calls, running } = stage();
    void endable.run({});
    running.resolve();
    await vi.advanceTimersByTimeAsync(0);
    await endable.end();
    expect(calls).toEqual(['disconnect']);
  });

  it('is disconnected after the join, when it is ended while it starts', async () => {
    const { endable, calls, tell } = stage();
    void endable.run({});
    const ended = endable.end();
    await vi.advanceTimersByTimeAsync(0);
    expect(calls).toEqual([]);
    tell('group_join');
    await vi.advanceTimersByTimeAsync(0);
    await ended;
    expect(calls).toEqual(['disconnect']);
  });

  it('does not start again after a crash, when it is ended while it starts', async () => {
    const { endable, calls, tell, mayRestart } = stage();
    void endable.run({});
    expect(await mayRestart()).toBe(true);
    const ended = endable.end();
    expect(await mayRestart()).toBe(false);
    tell('crash', false);
    await vi.advanceTimersByTimeAsync(0);
    await ended;
    expect(calls).toEqual(['disconnect']);
  });

  it('is not taken for running between a crash and the start that follows it', async () => {
    const { endable, calls, running, tell } = stage();
    void endable.run({});
    tell('crash', true);
    running.resolve();
    await vi.advanceTimersByTimeAsync(0);
    const ended = endable.end();
    await vi.advanceTimersByTimeAsync(500);
    expect(calls).toEqual([]);
    tell('group_join');
    await vi.advanceTimersByTimeAsync(0);
    await ended;
    expect(calls).toEqual(['disconnect']);
  });

  it('a start that takes long holds nobody up, and is ended all the same', async () => {
    const { endable, calls, tell } = stage();
    void endable.run({});
    const ended = endable.end();
    await vi.advanceTimersByTimeAsync(1_000);
    await ended;
    expect(calls).toEqual([]);
    tell('group_join');
    await vi.advanceTimersByTimeAsync(0);
    expect(calls).toEqual(['disconnect']);
  });
});
