import { expect, it } from 'vitest';
import { createLogger } from '../../src/log.ts';
import type { CopyProgress } from '../../src/pipeline/followed-state.ts';
import { RestoreLog } from '../../src/worker/restore-log.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

const INTERVAL_MS = 10_000;

it('a restore that takes long is logged every 10 s, with its place and its speed; a short one is not', async () => {
  const runtime = new VirtualRuntime();
  const lines: Record<string, unknown>[] = [];
  const log = createLogger({ level: 'info', destination: { write: (line) => void lines.push(JSON.parse(line)) } });
  const restoring = (end: number): CopyProgress => ({ state: 'restoring', isRecognised: true, end, logEnd: 9_000_000 });
  const progress: CopyProgress[] = [restoring(1_000_000), { state: 'absent' }];
  const logging = new RestoreLog({
    runtime,
    log,
    partitions: progress.length,
    progress: (partition) => progress[partition] ?? { state: 'absent' },
  });
  await runtime.until(runtime.sleep(INTERVAL_MS + 1));
  expect(lines).toEqual([]);
  progress[0] = restoring(5_000_000);
  await runtime.until(runtime.sleep(INTERVAL_MS));
  expect(lines).toMatchObject([{ partition: 0, end: 5_000_000, logEnd: 9_000_000, entriesPerSecond: 400_000 }]);
  progress[0] = { state: 'following', isRecognised: true, end: 9_000_000, logEnd: 9_000_000 };
  await runtime.until(runtime.sleep(2 * INTERVAL_MS));
  expect(lines).toHaveLength(1);
  logging[Symbol.dispose]();
  expect(runtime.pending).toBe(0);
});
