import { describe, expect, test } from 'vitest';
import { sharedRendering } from '../../src/http/ops.ts';

function stage() {
  const begun: PromiseWithResolvers<number>[] = [];
  let nowMs = 5_000;
  const render = sharedRendering(
    () => {
      const one = Promise.withResolvers<number>();
      begun.push(one);
      return one.promise;
    },
    () => nowMs,
  );
  const pass = (ms: number) => {
    nowMs += ms;
  };
  return { begun, render, pass };
}

describe('a rendering', () => {
  test('is shared for a second after its start', async () => {
    const { begun, render, pass } = stage();
    const first = render();
    begun[0]?.resolve(1);
    expect(await first).toBe(1);
    pass(999);
    expect(await render()).toBe(1);
    pass(1);
    const next = render();
    begun[1]?.resolve(2);
    expect(await next).toBe(2);
    expect(begun).toHaveLength(2);
  });

  test('that takes longer than a second does not run twice in parallel', async () => {
    const { begun, render, pass } = stage();
    const first = render();
    pass(3_000);
    const second = render();
    begun[0]?.resolve(1);
    expect(await Promise.all([first, second])).toEqual([1, 1]);
    expect(begun).toHaveLength(1);
  });

  test('that fails is not kept', async () => {
    const { begun, render } = stage();
    const first = render();
    begun[0]?.reject(new Error('no'));
    await expect(first).rejects.toThrow('no');
    const second = render();
    begun[1]?.resolve(2);
    expect(await second).toBe(2);
  });
});
