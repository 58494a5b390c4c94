import { expect, it } from 'vitest';
import { createLogger } from '../../src/log.ts';
import { type KeptCopy, logRestores } from '../../src/worker/ledger-service.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

const INTERVAL_MS = 10_000;

it('a long restore is logged every 10 s with its progress and speed; a short one is not', async () => {
  const runtime = new VirtualRuntime();
  const lines: Record<string, unknown>[] = [];
  const log = createLogger({ level: 'info', destination: { write: (line) => void lines.push(JSON.parse(line)) } });
  const at = (state: KeptCopy['state'], end: number): KeptCopy => {
    return { partition: 0, state, isRecognised: true, low: 0, end, logEnd: 9_000_000 };
  };
  let copy = at('restoring', 1_000_000);
  const logging = logRestores(runtime, log, () => [copy]);
  await runtime.until(runtime.sleep(INTERVAL_MS + 1));
  expect(lines).toEqual([]);
  copy = at('restoring', 5_000_000);
  await runtime.until(runtime.sleep(INTERVAL_MS));
  expect(lines).toMatchObject([{ partition: 0, end: 5_000_000, logEnd: 9_000_000, entriesPerSecond: 400_000 }]);
  copy = at('restoring', 9_000_000); // only to be compared with the log
  await runtime.until(runtime.sleep(2 * INTERVAL_MS));
  expect(lines).toHaveLength(1);
  copy = at('following', 9_000_000);
  await runtime.until(runtime.sleep(2 * INTERVAL_MS));
  expect(lines).toHaveLength(1);
  logging[Symbol.dispose]();
  expect(runtime.pending).toBe(0);
});
