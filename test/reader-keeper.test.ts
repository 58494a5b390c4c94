import { expect, it } from 'vitest';
import { createLogger } from '../src/log.ts';
import { type Reader, ReaderKeeper } from '../src/reader-keeper.ts';

class FakeReader implements Reader {
  readonly calls: string[] = [];
  readonly onCrash: (error: Error) => void;
  readonly #startFault: Error | undefined;

  constructor(onCrash: (error: Error) => void, startFault: Error | undefined) {
    this.onCrash = onCrash;
    this.#startFault = startFault;
  }

  async start(): Promise<void> {
    this.calls.push('start');
    if (this.#startFault !== undefined) throw this.#startFault;
  }

  async stop(): Promise<void> {
    this.calls.push('stop');
  }

  restart(partition: number): void {
    this.calls.push(`restart ${partition}`);
  }
}

/** A keeper whose rests end at once; readers whose number is in `unable` can't start. */
function world(unable: readonly number[] = []) {
  const readers: FakeReader[] = [];
  const failures: unknown[] = [];
  const clock = { ms: 0 };
  const keeper = new ReaderKeeper({
    what: 'ledger',
    create: (onCrash) => {
      const reader = new FakeReader(onCrash, unable.includes(readers.length) ? new Error('no broker') : undefined);
      readers.push(reader);
      return reader;
    },
    sleep: async () => {},
    monotonicMs: () => clock.ms,
    log: createLogger({ level: 'silent', destination: 'stderr' }),
    fail: (error) => failures.push(error),
  });
  /** All that was begun without a timer has ended. */
  const settled = () => new Promise<void>((resolve) => setImmediate(resolve));
  const crash = async () => {
    readers.at(-1)?.onCrash(new Error('gone'));
    await settled();
  };
  return { keeper, readers, failures, clock, crash, settled };
}

it('replaces a reader that ended, and lets the new one restart partitions', async () => {
  const { keeper, readers, failures, crash } = world();
  await keeper.start();
  await crash();
  keeper.restart(3);
  expect(readers.map(({ calls }) => calls)).toEqual([
    ['start', 'stop'],
    ['start', 'restart 3'],
  ]);
  expect(failures).toEqual([]);
});

it('goes on trying when a later reader can not start', async () => {
  const { keeper, readers, crash, settled } = world([1, 2]);
  await keeper.start();
  await crash();
  await settled();
  expect(readers.map(({ calls }) => calls)).toEqual([
    ['start', 'stop'],
    ['start', 'stop'],
    ['start', 'stop'],
    ['start'],
  ]);
});

it('rejects when the first reader can not start', async () => {
  await expect(world([0]).keeper.start()).rejects.toThrow('no broker');
});

it('fails when readers end again and again, but not when there is a minute between', async () => {
  const { keeper, failures, clock, crash } = world();
  await keeper.start();
  for (let i = 0; i < 100; i += 1) {
    clock.ms += 60_001;
    await crash();
  }
  expect(failures).toEqual([]);
  for (let i = 0; i < 60; i += 1) await crash();
  expect(failures).toHaveLength(1);
});

it('makes no reader once stopped, and hears no reader that was replaced', async () => {
  const { keeper, readers, crash, settled } = world();
  await keeper.start();
  await crash();
  readers[0]?.onCrash(new Error('late'));
  await settled();
  expect(readers).toHaveLength(2);
  await keeper.stop();
  await crash();
  expect(readers.map(({ calls }) => calls)).toEqual([
    ['start', 'stop'],
    ['start', 'stop'],
  ]);
});
