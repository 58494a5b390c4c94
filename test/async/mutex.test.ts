import { describe, expect, it } from 'vitest';
import { Mutex } from '../../src/async/mutex.ts';

describe('a mutex', () => {
  it('runs one piece of work at a time, in the order of the calls', async () => {
    const mutex = new Mutex();
    const steps: string[] = [];
    const first = Promise.withResolvers<void>();
    const turns = ['a', 'b'].map((name) =>
      mutex.run(async () => {
        steps.push(`${name} begins`);
        if (name === 'a') await first.promise;
        steps.push(`${name} ends`);
        return name;
      }),
    );
    await Promise.resolve();
    expect(steps).toEqual(['a begins']);
    first.resolve();
    expect(await Promise.all(turns)).toEqual(['a', 'b']);
    expect(steps).toEqual(['a begins', 'a ends', 'b begins', 'b ends']);
  });

  it('gives a failure to its own caller only', async () => {
    const mutex = new Mutex();
    const failed = mutex.run(() => Promise.reject(new Error('no')));
    const next = mutex.run(async () => 'done');
    await expect(failed).rejects.toThrow('no');
    expect(await next).toBe('done');
  });

  it('starts the next work when all work so far has ended, successfully or not', async () => {
    const mutex = new Mutex();
    const ends: string[] = [];
    mutex.run(() => Promise.reject(new Error('no'))).catch(() => ends.push('failed'));
    void mutex.run(async () => void ends.push('done'));
    await mutex.run(() => undefined);
    expect(ends).toEqual(['failed', 'done']);
  });
});
