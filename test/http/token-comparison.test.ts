import { timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { expect, test, vi } from 'vitest';
import { identifyBy } from '../../src/http/callers.ts';

vi.mock('node:crypto', async (load) => {
  const loaded = await load<typeof import('node:crypto')>();
  return { ...loaded, timingSafeEqual: vi.fn(loaded.timingSafeEqual) };
});

test('the time that a login takes does not depend on which token it has, or how much of one', () => {
  const names = ['first', 'middle', 'last'];
  const tokens = names.map((name) => `${name}:token-of-${name}-12345\n`).join('');
  const identify = identifyBy({ tokens: () => tokens, mutualTls: false, monotonicMs: () => 0 });
  for (const name of [...names, 'nobody']) {
    vi.mocked(timingSafeEqual).mockClear();
    const rawHeaders = ['Authorization', `Bearer token-of-${name}-12345`];
    const request = { rawHeaders, socket: {} } as unknown as IncomingMessage;
    const who = () => identify(request).name;
    if (name === 'nobody') expect(who).toThrow('unknown bearer token');
    else expect(who()).toBe(name);
    // Each token is compared, in constant time.
    expect(timingSafeEqual).toHaveBeenCalledTimes(names.length);
  }
});
