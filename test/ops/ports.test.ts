import { expect, test } from 'vitest';
import { allFree, freePorts } from '../../ops/dev/ports.ts';

/** The first port that Linux gives to outgoing connections. */
const EPHEMERAL = 32_768;

test('free ports differ, and no outgoing connection takes one while its server restarts', async () => {
  const ports = await freePorts(50);
  expect(new Set(ports).size).toBe(50);
  expect(Math.max(...ports)).toBeLessThan(EPHEMERAL);
  expect(await allFree(ports)).toBe(true);
});
