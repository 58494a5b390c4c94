import { describe, expect, it } from 'vitest';
import { Bag } from '../../src/async/bag.ts';

describe('a bag', () => {
  const item = (name: number) => ({ place: 0, name });

  it('has what was added and not removed since, whatever the order', () => {
    const bag = new Bag<ReturnType<typeof item>>();
    const model = new Set<ReturnType<typeof item>>();
    for (let i = 0; i < 2_000; i += 1) {
      const all = [...model];
      const victim = all[(i * 7_919) % (all.length + 3)]; // from time to time none
      const added = item(i);
      if (victim === undefined || i % 5 === 0) model.add(added);
      if (victim === undefined || i % 5 === 0) bag.add(added);
      if (victim !== undefined) model.delete(victim);
      if (victim !== undefined) bag.remove(victim);
      expect([bag.size, new Set(bag)]).toEqual([model.size, model]);
    }
  });

  it('ignores the removal of what is not there, or no longer', () => {
    const bag = new Bag<ReturnType<typeof item>>();
    const [a, b, stranger] = [item(1), item(2), item(3)];
    bag.add(a);
    bag.add(b);
    for (const gone of [stranger, a, a]) bag.remove(gone);
    expect([...bag]).toEqual([b]);
    bag.remove(b);
    bag.remove(b);
    expect(bag.size).toBe(0);
  });
});
