import { describe, it } from 'vitest';
import { RUNTIME } from '../src/runtime.ts';

describe('sleeping', () => {
  it('ends immediately when the signal aborts', async () => {
    const stop = new AbortController();
    const slept = RUNTIME.sleep(3_600_000, stop.signal);
    stop.abort();
    await slept;
    await RUNTIME.sleep(3_600_000, stop.signal);
  });
});
